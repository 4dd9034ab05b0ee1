// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/group_state.hpp>

// Defines which memory each row of a group's placement table stands for. A new role needs its memory here, which the
// compiler says; a new row of a known role needs nothing.

namespace shardkit::detail SHARDKIT_BUILD {

template <class Engine, class Precision>
List<HeldBuffer> GroupState<Engine, Precision>::held() {
    List<HeldBuffer> all;
    const auto add = [&]<class T>(Role role, std::span<T> values, IndexRange flat, Extent extent) {
        all.push_back({role, {}, values.data(), sizeof(T), flat, extent});
    };
    const auto add_row = [&](const BufferRow& row, auto values) {
        add(row.role, values, geometry_.range(row.extent), row.extent);
    };
    const Role sums = geometry_.table.find(Role::reduced) != nullptr ? Role::reduced : Role::gradients;
    parameters_.wait();
    for (const BufferRow& row : geometry_.table.buffers()) {
        switch (row.role) {
            case Role::parameters:
                if (Precision::gathers_codes) { break; }  // follow from the masters
                if (parameters_.rests_with_copies() && !parameters_.copies_are_current()) {
                    // The next gather replaces what other ranks have updated.
                    add(row.role, parameters_.gather_source(), geometry_.updated, geometry_.table.updated);
                } else {
                    add_row(row, parameters_.resting());
                }
                break;
            case Role::gathered:
                if (!Precision::gathers_codes && row.held == Held::always && parameters_.copies_are_current()) {
                    add_row(row, parameters_.full());
                }
                break;
            case Role::secondary:
                if (parameters_.shard_is_current()) { add_row(row, parameters_.secondary()); }
                break;
            case Role::master:
                if (geometry_.splits_master()) {
                    add_row(row, parameters_.rest());
                } else if constexpr (Precision::has_master) {
                    add_row(row, parameters_.master());
                }
                break;
            case Role::gradients:
            case Role::reduced:
                if (row.role == sums && step_.reduced() && !step_.updated()) {
                    gradients_.wait();
                    const Extent extent = geometry_.table.reduced;
                    add(row.role, gradients_.reduced(), geometry_.range(extent), extent);
                }
                break;
            case Role::states:     // an optimizer's
            case Role::addend:     // of no use once it is added
            case Role::subtotals:  // of no use once all slices are added
                break;
        }
    }
    return all;
}

}  // namespace shardkit::detail SHARDKIT_BUILD
