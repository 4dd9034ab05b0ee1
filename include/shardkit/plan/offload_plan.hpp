// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/plan/group_description.hpp>
#include <shardkit/policy/state_format.hpp>

namespace shardkit::detail {

/// Returns the states that an optimizer keeps of a group.
constexpr const OptimizerStates& states_of(const GroupDescription& group, const PlanOptions& options) noexcept {
    return group.optimizer_states ? *group.optimizer_states : options.optimizer_states;
}

/// Elements of a piece are a multiple of this, so that each buffer's part of a piece is a multiple of 128 bytes.
inline constexpr std::size_t offload_unit = 1024;

/// Returns the bytes of `elements` of what a group offloads: master weights, or the halves of split ones, and states.
constexpr std::size_t offloaded_bytes(const ElementSizes& sizes, const OptimizerStates& states,
                                      std::size_t elements) noexcept {
    return (sizes.has_master ? elements * sizes.master : 0) +
           states.count * state_bytes(states.format, elements, sizes.state);
}
/// Returns how many elements a piece has that fills a slot; 0 where the group has nothing to offload.
constexpr std::size_t offload_piece(const ElementSizes& sizes, const OptimizerStates& states,
                                    std::size_t slot_bytes) noexcept {
    const std::size_t unit = offloaded_bytes(sizes, states, offload_unit);
    return unit == 0 ? 0 : slot_bytes / unit * offload_unit;
}

}  // namespace shardkit::detail
