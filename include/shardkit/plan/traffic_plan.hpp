// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/layout/shard_range.hpp>
#include <shardkit/plan/group_description.hpp>
#include <shardkit/plan/plan_options.hpp>

namespace shardkit {

/// Which communicator of a group a collective runs over.
enum class TrafficAxes : std::uint8_t {
    shards,    ///< the policy's shard axes
    replicas,  ///< the remaining data axes
    data,      ///< all data axes
    tp,        ///< what tp::PartialSum gradients owe, and what a trainer adds for its activations
    cp,        ///< what a trainer adds for its keys and values
    world      ///< every rank: the global norm
};

/// One row of a plan: collectives of one verb over one set of axes in one training step, on one rank.
struct PlannedTraffic {
    std::uint64_t calls = 0;
    ByteCount payload;  ///< bytes of the whole buffers
    ByteCount moved;    ///< bytes between this rank and its peers, the mean over ranks

    friend constexpr bool operator==(const PlannedTraffic&, const PlannedTraffic&) noexcept = default;
};

/// Collectives and bytes on the wire of one training step. A group of one rank communicates nothing.
class TrafficPlan {
  public:
    constexpr const PlannedTraffic& operator()(Verb verb, TrafficAxes axes) const noexcept {
        return rows_[index(verb, axes)];
    }
    /// Over all axes.
    constexpr PlannedTraffic total(Verb verb) const noexcept {
        PlannedTraffic all;
        for (const TrafficAxes axes : all_axes) {
            const PlannedTraffic& row = (*this)(verb, axes);
            all.calls += row.calls;
            all.payload += row.payload;
            all.moved += row.moved;
        }
        return all;
    }
    constexpr void add(Verb verb, TrafficAxes axes, std::uint64_t calls, std::uint64_t payload, std::uint64_t moved) {
        PlannedTraffic& row = rows_[index(verb, axes)];
        row.calls += calls;
        row.payload += ByteCount(calls * payload);
        row.moved += ByteCount(calls * moved);
    }
    /// Calls that not every rank makes: the mean over the ranks, of all of them together, rounded.
    constexpr void add_mean(Verb verb, TrafficAxes axes, double calls, double payload, double moved) {
        const auto rounded = [](double exact) {
            const auto down = static_cast<std::uint64_t>(exact);
            return exact - static_cast<double>(down) < 0.5 ? down : down + 1;
        };
        PlannedTraffic& row = rows_[index(verb, axes)];
        row.calls += rounded(calls);
        row.payload += ByteCount(rounded(payload));
        row.moved += ByteCount(rounded(moved));
    }
    friend constexpr bool operator==(const TrafficPlan&, const TrafficPlan&) noexcept = default;

    static constexpr std::array<TrafficAxes, 6> all_axes{TrafficAxes::shards, TrafficAxes::replicas,
                                                         TrafficAxes::data,   TrafficAxes::tp,
                                                         TrafficAxes::cp,     TrafficAxes::world};
    /// Those that a plan may have rows of.
    static constexpr std::array<Verb, 5> verbs{Verb::all_gather, Verb::reduce_scatter, Verb::all_reduce, Verb::send,
                                               Verb::receive};

  private:
    static constexpr std::size_t index(Verb verb, TrafficAxes axes) noexcept {
        return static_cast<std::size_t>(verb) * all_axes.size() + static_cast<std::size_t>(axes);
    }
    std::array<PlannedTraffic, verb_count * all_axes.size()> rows_{};
};

namespace detail {

constexpr void add_gathers(TrafficPlan& plan, const GroupDescription& g, const PlanOptions& options) {
    std::uint64_t gathers = 0;
    if (g.policy.parameters == Placement::sharded) {
        const std::size_t windows = g.windows_per_microbatch.value_or(options.windows_per_microbatch);
        gathers = g.policy.release == Release::at_reshard ? options.microbatches * windows : g.trainable ? 1U : 0U;
    } else if (g.policy.optimizer == Placement::sharded && g.trainable) {
        gathers = 1;
    }
    if (g.shards == 1 || gathers == 0) { return; }
    const std::uint64_t bytes = g.buffer_numel * g.sizes.gather;
    plan.add(Verb::all_gather, TrafficAxes::shards, gathers, bytes, part_from_peers(bytes, g.shards));
}

constexpr void add_reductions(TrafficPlan& plan, const GroupDescription& g, std::size_t data_ranks,
                              const PlanOptions& options) {
    const std::uint64_t full = g.buffer_numel * g.sizes.gradient;
    const std::size_t travelling = options.engine.sums_travel_widened && g.sizes.reduction > g.sizes.gradient
                                       ? g.sizes.reduction
                                       : g.sizes.gradient;
    const std::uint64_t addends = g.buffer_numel * travelling;
    if (g.policy.gradients == Placement::replicated) {
        if (data_ranks == 1) { return; }
        const std::uint64_t result = g.buffer_numel * g.sizes.reduction;
        plan.add(Verb::all_reduce, TrafficAxes::data, 1, full,
                 all_reduce_moved(addends, result, data_ranks, options.engine));
        return;
    }
    if (g.shards > 1) {
        const std::uint64_t calls = g.policy.accumulate == Accumulate::reduced ? options.microbatches : 1U;
        plan.add(Verb::reduce_scatter, TrafficAxes::shards, calls, full, part_from_peers(addends, g.shards));
    }
    if (const std::size_t replicas = data_ranks / g.shards; replicas > 1) {
        const std::uint64_t shard = g.shard_numel * g.sizes.reduction;
        plan.add(Verb::all_reduce, TrafficAxes::replicas, 1, shard,
                 all_reduce_moved(shard, shard, replicas, options.engine));
    }
}

/// What one model's ranks sum over tp, together: a group's sharded gradients are summed by the ranks whose shards
/// meet its partial sums.
struct TpSums {
    double calls = 0;
    double payload = 0;
    double moved = 0;
};
constexpr void add_tp_sums(TpSums& sums, const GroupDescription& g, const PlanOptions& options) {
    if (g.tp_sum.empty()) { return; }
    const std::size_t holders = g.policy.gradients == Placement::sharded ? g.shards : 1;
    for (std::size_t shard = 0; shard < holders; ++shard) {
        const IndexRange held =
            holders == 1 ? IndexRange{0, g.buffer_numel} : shard_range(shard, g.shard_numel, g.buffer_numel);
        const std::uint64_t bytes = intersect(held, g.tp_sum).size() * g.sizes.reduction;
        if (bytes == 0) { continue; }
        const auto share = 1 / static_cast<double>(holders);
        sums.calls += share;
        sums.payload += share * static_cast<double>(bytes);
        sums.moved += share * static_cast<double>(all_reduce_moved(bytes, bytes, g.tp, options.engine));
    }
}

}  // namespace detail

/// Collectives of one training step in steady state.
/// @post with n = shards, gather bytes G and reduce bytes R, times (n - 1) / n: NoShard 2 R; ShardOptimizer
///       R + G; ShardGradOp M R + G; FullShard M (R + 2 G); hybrid as FullShard plus one all-reduce of R / n
/// Source:  ZeRO, arXiv 1910.02054, section 7; Chan et al. 2007 for the costs of collectives
constexpr TrafficPlan plan_traffic(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                   const PlanOptions& options = {}) {
    TrafficPlan plan;
    const std::size_t data_ranks = mesh.extent(Dp::name) * mesh.extent(Cp::name);
    std::size_t most_shards = 0;
    detail::TpSums tp_sums;
    for (const GroupDescription& g : groups) {
        detail::add_gathers(plan, g, options);
        if (g.trainable) {
            detail::add_reductions(plan, g, data_ranks, options);
            detail::add_tp_sums(tp_sums, g, options);
        }
        most_shards = std::max(most_shards, g.shards);
    }
    plan.add_mean(Verb::all_reduce, TrafficAxes::tp, tp_sums.calls, tp_sums.payload, tp_sums.moved);
    if (mesh.size() > 1 && options.norms_per_step > 0) {
        const std::uint64_t bytes = 2 * most_shards * sizeof(double);
        plan.add(Verb::all_reduce, TrafficAxes::world, options.norms_per_step, bytes,
                 all_reduce_moved(bytes, bytes, mesh.size(), options.engine));
    }
    return plan;
}

}  // namespace shardkit
