// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/rank/rank.hpp>

#include "../../benchmarks/common/measure.hpp"

namespace benchmarks {

/// How the verb goes wrong.
enum class Fault : std::uint8_t { none, one_element, not_called };

/// The verb V, but on rank 1 its result is spoiled. In memory that the host can write, the stand-in's as well.
template <class V, Fault F>
struct Planted : V {
    void call(const auto& c) {
        if (F == Fault::not_called) { return; }
        V::call(c);
        spoil(c, c.received.size() - 1);
    }
    void call_in_place(const auto& c) {
        if (F == Fault::not_called) { return; }
        V::call_in_place(c);
        spoil(c, 1);
    }

  private:
    template <class C, class T>
    static void spoil(const VerbCall<C, T>& c, std::size_t index) {
        c.stream.synchronize();
        if (F == Fault::one_element && c.comm.rank() == 1) { c.received[index] = static_cast<T>(300.0F); }
    }
};

/// Wrong values over all ranks after so many checks of V, which has this placement or else counts none. Collective.
template <class V, class T>
std::uint64_t wrong_after_checks(shardkit::Rank& rank, Placement placement, const Shape& shape, std::size_t checks) {
    if constexpr (V::out_of_place) {
        if (placement == Placement::out_of_place) {
            OutOfPlace<V, T> workload(rank, rank.world(), shape);
            return wrong_values(rank, checks, workload);
        }
    }
    if constexpr (V::in_place) {
        if (placement == Placement::in_place) {
            InPlace<V, T> workload(rank, rank.world(), shape);
            return wrong_values(rank, checks, workload);
        }
    }
    return 0;
}

}  // namespace benchmarks
