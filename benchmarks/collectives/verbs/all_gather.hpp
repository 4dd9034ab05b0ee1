// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/all_gather.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank receives every rank's piece. Size: the whole; count: a piece.
struct AllGather : Verb {
    static constexpr bool in_place = true;
    template <class C, class T>
    static constexpr bool offered = shardkit::AllGathers<C, T>;

    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    /// The whole is read and written; in place without the own piece.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place ? (ranks - 1) / ranks : 1;
    }

    static std::size_t received(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.value(i / s.piece, i % s.piece); }
    static Number given_in_place(const Shape& s, std::size_t i) {
        return i / s.piece == s.rank ? given(s, i % s.piece) : Number();
    }
    static Number expected_in_place(const Shape& s, std::size_t i) { return expected(s, i); }

    template <class C, class T>
    static void call(const C& comm, const Shape&, std::span<const T> sent, std::span<T> received,
                     typename C::Stream stream) {
        shardkit::all_gather(comm, sent, received, stream);
    }
    template <class C, class T>
    static void call_in_place(const C& comm, const Shape&, std::span<T> values, typename C::Stream stream) {
        shardkit::all_gather_in_place(comm, values, stream);
    }
};

}  // namespace benchmarks
