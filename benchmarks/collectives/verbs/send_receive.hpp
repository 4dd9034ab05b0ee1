// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/send_receive.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank sends to the next one and receives from the previous one, in a ring.
struct SendReceive : Verb {
    template <class C, class T>
    static constexpr bool offered = shardkit::SendsAndReceives<C, T>;

    static double bus_factor(double) { return 1; }
    static double copied(Placement, double) { return 1; }

    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.value(s.previous(), i); }

    template <class C, class T>
    static void call(const C& comm, const Shape& s, std::span<const T> sent, std::span<T> received,
                     typename C::Stream stream) {
        shardkit::send_receive(comm, sent, s.next(), received, s.previous(), stream);
    }
};

}  // namespace benchmarks
