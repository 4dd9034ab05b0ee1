// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/core/counts.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/policy/state_format.hpp>

namespace shardkit::detail {

/// Returns the states that an optimizer keeps of a group.
constexpr const OptimizerStates& states_of(const GroupDescription& group,
                                           const planner::PlanOptions& options) noexcept {
    return group.optimizer_states ? *group.optimizer_states : options.optimizer_states;
}

/// Elements of a piece are a multiple of this, so that each buffer's part of a piece is a multiple of 128 bytes.
inline constexpr std::size_t offload_unit = 1024;

/// Returns the bytes of `elements` of what a group offloads: master weights, or the halves of split ones, and states.
constexpr std::size_t offloaded_bytes(const ElementSizes& sizes, const OptimizerStates& states,
                                      std::size_t elements) noexcept {
    return (sizes.has_master ? elements * sizes.master : 0) + states.bytes(elements, sizes.state);
}
/// Returns the bytes of `elements` that pass the link for an update on the host: gradients and parameters go there.
constexpr std::size_t fetched_bytes(const ElementSizes& sizes, std::size_t elements) noexcept {
    return elements * (sizes.reduction + sizes.gather);
}
/// Returns how many elements a piece has that fills a slot; 0 where the group has nothing to offload.
constexpr std::size_t offload_piece(const GroupDescription& group, const OptimizerStates& states,
                                    std::size_t slot_bytes) noexcept {
    const std::size_t unit = offloaded_bytes(group.sizes, states, offload_unit);
    if (!group.offloads() || unit == 0) { return 0; }
    const bool on_host = group.offload == Offload::update;
    return slot_bytes / (on_host ? fetched_bytes(group.sizes, offload_unit) : unit) * offload_unit;
}

}  // namespace shardkit::detail

namespace shardkit::planner {

/// What a step of one rank moves between its device and the host's memory for offloaded groups. Pieces of which
/// nothing is trained, of frozen parameters or padding, do not move.
struct HostLinkPlan {
    ByteCount to_device;
    ByteCount to_host;
    std::size_t pieces = 0;  ///< that are updated one behind the other

    friend constexpr bool operator==(const HostLinkPlan&, const HostLinkPlan&) noexcept = default;
};

/// Returns the bytes that one group's update moves between the device and the host's memory.
constexpr HostLinkPlan plan_host_link(const GroupDescription& group, const PlanOptions& options = {}) {
    const OptimizerStates& states = detail::states_of(group, options);
    const std::size_t piece = detail::offload_piece(group, states, options.offload_slot_bytes);
    if (piece == 0) { return {}; }
    const std::size_t elements =
        group.numel_of(detail::extent_of(group.policy.optimizer, group.policy.across_groups.states));
    const std::size_t pieces = (elements + piece - 1) / piece;
    if (group.offload == Offload::update) {
        return {ByteCount(elements * group.sizes.gather), ByteCount(detail::fetched_bytes(group.sizes, elements)),
                pieces};
    }
    const ByteCount bytes(detail::offloaded_bytes(group.sizes, states, elements));
    return {bytes, bytes, pieces};
}
/// Returns the sum over groups.
constexpr HostLinkPlan plan_host_link(std::span<const GroupDescription> groups, const PlanOptions& options = {}) {
    HostLinkPlan all;
    for (const GroupDescription& group : groups) {
        const HostLinkPlan its = plan_host_link(group, options);
        all.to_device += its.to_device;
        all.to_host += its.to_host;
        all.pieces += its.pieces;
    }
    return all;
}

}  // namespace shardkit::planner
