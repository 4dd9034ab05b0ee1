// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/all_reduce.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank receives the whole sum.
struct AllReduce : Verb {
    static constexpr bool in_place = true;
    static constexpr bool reduces = true;
    template <class C, class T>
    static constexpr bool offered = shardkit::AllReduces<C, T, T>;

    static double bus_factor(double ranks) { return 2 * (ranks - 1) / ranks; }
    /// Every input is read once and every output written once. One rank alone leaves what is in place.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place && ranks < 2 ? 0 : 1;
    }

    static Number given(const Shape& s, std::size_t i) { return s.addend(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.reduced(i); }
    static Number given_in_place(const Shape& s, std::size_t i) { return given(s, i); }
    static Number expected_in_place(const Shape& s, std::size_t i) { return expected(s, i); }

    template <class C, class T>
    static void call(const C& comm, const Shape& s, std::span<const T> sent, std::span<T> received,
                     typename C::Stream stream) {
        shardkit::all_reduce(comm, s.op, sent, received, stream);
    }
    template <class C, class T>
    static void call_in_place(const C& comm, const Shape& s, std::span<T> values, typename C::Stream stream) {
        shardkit::all_reduce_in_place(comm, s.op, values, stream);
    }
};

}  // namespace benchmarks
