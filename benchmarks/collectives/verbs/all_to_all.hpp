// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/all_to_all.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank sends a piece of its own to every rank. Size: what a rank sends in all; count: a piece.
struct AllToAll : Verb {
    template <class C, class T>
    static constexpr bool offered = shardkit::ExchangesAllToAll<C, T>;

    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    static double copied(Placement, double) { return 1; }

    static std::size_t sent(const Shape& s) { return s.ranks() * s.piece; }
    static std::size_t received(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    /// Piece q is what rank q sends here.
    static Number expected(const Shape& s, std::size_t i) {
        return s.value(i / s.piece, s.rank * s.piece + i % s.piece);
    }

    template <class C, class T>
    static void call(const C& comm, const Shape&, std::span<const T> sent, std::span<T> received,
                     typename C::Stream stream) {
        shardkit::all_to_all(comm, sent, received, stream);
    }
};

}  // namespace benchmarks
