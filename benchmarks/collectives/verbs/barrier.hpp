// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/barrier.hpp>

#include "verb.hpp"

namespace benchmarks {

/// Every rank waits for every rank; no data, no bandwidth.
struct Barrier : Verb {
    static constexpr bool moves_data = false;
    template <class C, class T>
    static constexpr bool offered = shardkit::Communicator<C>;

    static double bus_factor(double) { return 0; }
    static double copied(Placement, double) { return 0; }

    static std::size_t sent(const Shape&) { return 0; }
    static std::size_t received(const Shape&) { return 0; }
    static Number given(const Shape&, std::size_t) { return {}; }
    static Number expected(const Shape&, std::size_t) { return {}; }

    template <class C, class T>
    static void call(const C& comm, const Shape&, std::span<const T>, std::span<T>, typename C::Stream stream) {
        shardkit::barrier(comm, stream);
    }
};

}  // namespace benchmarks
