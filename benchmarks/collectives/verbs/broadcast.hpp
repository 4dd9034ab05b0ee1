// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/broadcast.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank receives the root's values, in place only.
struct Broadcast : Verb {
    static constexpr bool out_of_place = false;
    static constexpr bool in_place = true;
    static constexpr bool has_root = true;
    template <class C, class T>
    static constexpr bool offered = shardkit::Broadcasts<C, T>;

    static double bus_factor(double) { return 1; }
    /// Every rank but the root reads and writes the whole; the yardstick shares this out among all.
    static double copied(Placement, double ranks) { return (ranks - 1) / ranks; }

    static Number given_in_place(const Shape& s, std::size_t i) {
        return s.rank == s.root ? s.value(s.root, i) : Number();
    }
    static Number expected_in_place(const Shape& s, std::size_t i) { return s.value(s.root, i); }

    template <class C, class T>
    static void call_in_place(const C& comm, const Shape& s, std::span<T> values, typename C::Stream stream) {
        shardkit::broadcast(comm, values, s.root, stream);
    }
};

}  // namespace benchmarks
