// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/reduce_scatter.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank receives its piece of the sum. Size: the whole; count: a piece.
struct ReduceScatter : Verb {
    static constexpr bool in_place = true;
    static constexpr bool reduces = true;
    template <class C, class T>
    static constexpr bool offered = shardkit::ReduceScatters<C, T, T>;

    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    /// A rank reads its piece of every input, the size of the whole, and writes one piece. One rank alone leaves
    /// what is in place.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place && ranks < 2 ? 0 : (1 + 1 / ranks) / 2;
    }

    static std::size_t sent(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.addend(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.reduced(s.rank * s.piece + i); }
    static Number given_in_place(const Shape& s, std::size_t i) { return given(s, i); }
    /// The other pieces keep their values.
    static Number expected_in_place(const Shape& s, std::size_t i) {
        return i / s.piece == s.rank ? s.reduced(i) : given(s, i);
    }

    template <class C, class T>
    static void call(const C& comm, const Shape& s, std::span<const T> sent, std::span<T> received,
                     typename C::Stream stream) {
        shardkit::reduce_scatter(comm, s.op, sent, received, stream);
    }
    template <class C, class T>
    static void call_in_place(const C& comm, const Shape& s, std::span<T> values, typename C::Stream stream) {
        shardkit::reduce_scatter_in_place(comm, s.op, values, stream);
    }
};

}  // namespace benchmarks
