// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <shardkit/core/counts.hpp>
#include <shardkit/optim/norm_partial.hpp>
#include <shardkit/plan/group_description.hpp>
#include <shardkit/plan/plan_options.hpp>

namespace shardkit {

/// Peak bytes of the library's buffers on one rank, by kind. Every rank holds the same.
struct MemoryPlan {
    ByteCount parameters;        ///< at rest: the full buffers, or the shards
    ByteCount master;            ///< master shards, where the master type differs
    ByteCount gradients;         ///< at rest: full gradients that microbatches add to, and reduced ones
    ByteCount optimizer;         ///< states
    ByteCount gather_buffers;    ///< full parameters while windows are open
    ByteCount gradient_buffers;  ///< full gradients while a microbatch is open
    ByteCount reduce_buffers;    ///< addends of later microbatches, and the norm's partial sums

    constexpr ByteCount total() const noexcept {
        return parameters + master + gradients + optimizer + gather_buffers + gradient_buffers + reduce_buffers;
    }
    friend constexpr bool operator==(const MemoryPlan&, const MemoryPlan&) noexcept = default;
};

namespace detail {

/// Whether group `i` adds a slot to the pool that `bytes_of` names: only the first in_flight members do.
template <class BytesOf>
constexpr bool adds_slot(std::span<const GroupDescription> groups, std::size_t i, std::size_t in_flight,
                         BytesOf bytes_of) {
    std::size_t earlier = 0;
    for (std::size_t j = 0; j < i; ++j) { earlier += bytes_of(groups[j]) == bytes_of(groups[i]) ? 1U : 0U; }
    return bytes_of(groups[i]) > 0 && earlier < in_flight;
}

constexpr std::size_t gather_slot_bytes(const GroupDescription& g) noexcept {
    const bool leased = g.policy.parameters == Placement::sharded && g.policy.release == Release::at_reshard;
    return leased ? g.buffer_numel * g.sizes.gather : 0;
}
constexpr std::size_t gradient_slot_bytes(const GroupDescription& g) noexcept {
    return g.trainable && g.policy.accumulate == Accumulate::reduced ? g.buffer_numel * g.sizes.gradient : 0;
}
constexpr std::size_t addend_slot_bytes(const GroupDescription& g) noexcept {
    return gradient_slot_bytes(g) > 0 && !g.sizes.reduces_in_place ? g.shard_numel * g.sizes.reduction : 0;
}

}  // namespace detail

/// Peak bytes per rank for these groups.
/// @post equals what the containers, an optimizer with that many states and global_norm allocate in buffers
constexpr MemoryPlan plan_memory(std::span<const GroupDescription> groups, const PlanOptions& options = {}) {
    MemoryPlan plan;
    std::size_t most_shards = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const GroupDescription& g = groups[i];
        const bool sharded_parameters = g.policy.parameters == Placement::sharded;
        const bool sharded_gradients = g.policy.gradients == Placement::sharded;
        const std::size_t updated = g.policy.optimizer == Placement::sharded ? g.shard_numel : g.buffer_numel;

        plan.parameters += ByteCount((sharded_parameters ? g.shard_numel : g.buffer_numel) * g.sizes.gather);
        if (sharded_parameters && g.policy.release == Release::at_update) {
            plan.gather_buffers += ByteCount(g.buffer_numel * g.sizes.gather);
        }
        if (detail::adds_slot(groups, i, options.in_flight, detail::gather_slot_bytes)) {
            plan.gather_buffers += ByteCount(detail::gather_slot_bytes(g));
        }
        most_shards = std::max(most_shards, g.shards);
        if (!g.trainable) { continue; }

        if (g.sizes.has_master) { plan.master += ByteCount(updated * g.sizes.master); }
        plan.optimizer += ByteCount(updated * g.sizes.state * options.optimizer_states);
        const bool each_microbatch = g.policy.accumulate == Accumulate::reduced;
        if (!each_microbatch) { plan.gradients += ByteCount(g.buffer_numel * g.sizes.gradient); }
        if (each_microbatch || !g.sizes.reduces_in_place) {
            plan.gradients += ByteCount((sharded_gradients ? g.shard_numel : g.buffer_numel) * g.sizes.reduction);
        }
        if (detail::adds_slot(groups, i, options.in_flight, detail::gradient_slot_bytes)) {
            plan.gradient_buffers += ByteCount(detail::gradient_slot_bytes(g));
        }
        if (options.microbatches > 1 && detail::adds_slot(groups, i, options.in_flight, detail::addend_slot_bytes)) {
            plan.reduce_buffers += ByteCount(detail::addend_slot_bytes(g));
        }
    }
    if (options.norms_per_step > 0) {
        plan.reduce_buffers += ByteCount((1 + 2 * most_shards + 2 * norm_slots) * sizeof(double));
    }
    return plan;
}

}  // namespace shardkit
