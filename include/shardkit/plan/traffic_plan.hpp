// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/plan/moved_bytes.hpp>
#include <shardkit/plan/planned_axes.hpp>
#include <shardkit/plan/step_counts.hpp>

namespace shardkit::planner {

/// The collectives of one verb over one set of axes in one training step, on one rank.
struct PlannedTraffic {
    std::uint64_t calls = 0;
    ByteCount payload;        ///< size of the whole buffers
    ByteCount moved;          ///< bytes between this rank and its peers, as a mean over ranks
    ByteCount between_hosts;  ///< the part of `moved` from or to ranks of other hosts, as a mean over ranks
    ByteCount busiest{};      ///< what the rank moves that moves most, where the mean is not what all ranks wait for

    constexpr PlannedTraffic& operator+=(const PlannedTraffic& other) noexcept {
        calls += other.calls;
        payload += other.payload;
        moved += other.moved;
        between_hosts += other.between_hosts;
        busiest += other.busiest;
        return *this;
    }
    friend constexpr bool operator==(const PlannedTraffic&, const PlannedTraffic&) noexcept = default;
};
/// One verb and set of axes of a plan, with calls and bytes.
struct PlannedRow {
    Verb verb{};
    PlannedAxes axes;
    PlannedTraffic traffic;

    friend constexpr bool operator==(const PlannedRow&, const PlannedRow&) noexcept = default;
};

/// Traffic that differs between ranks: what they make of it together, or a mean.
struct MeanTraffic {
    PlannedAxes axes;
    double calls = 0, payload = 0, moved = 0, between_hosts = 0;
};

/// The collectives and bytes on the wire of one training step. A group of one rank communicates nothing.
class TrafficPlan {
  public:
    static constexpr std::size_t max_rows = 32;

    /// Returns the rows, one for each verb and set of axes.
    constexpr std::span<const PlannedRow> rows() const noexcept { return {rows_.data(), count_}; }
    /// Returns what a rank's log would report for the axes with this label: "dp_shard x cp". Those of experts and of
    /// other groups may have the same.
    PlannedTraffic operator()(Verb verb, std::string_view label) const {
        PlannedTraffic all;
        for (const PlannedRow& row : rows()) {
            if (row.verb == verb && row.axes.label() == label) { all += row.traffic; }
        }
        return all;
    }
    /// Returns the sum over all axes.
    constexpr PlannedTraffic total(Verb verb) const noexcept {
        PlannedTraffic all;
        for (const PlannedRow& row : rows()) {
            if (row.verb == verb) { all += row.traffic; }
        }
        return all;
    }
    /// @throws std::length_error when there are too many sets of axes
    constexpr void add(Verb verb, const PlannedAxes& axes, std::uint64_t calls, std::uint64_t payload,
                       const MovedBytes& moved) {
        add_all(verb, axes, calls, calls * payload, {calls * moved.bytes, calls * moved.between_hosts});
    }
    /// Adds calls that every rank of a mesh makes on buffers of `bytes` bytes: the parts of all ranks in a gather or
    /// an all-to-all, one rank's addends in a sum, a message to or from the next rank of a ring.
    constexpr void add(Verb verb, const PlannedAxes& axes, std::uint64_t calls, std::uint64_t bytes,
                       const AxisGrid& mesh, const engine::Traits& engine = {}, std::size_t ranks_per_host = 0) {
        const std::uint64_t ranks = axes.is_world() ? mesh.size() : axes.group(mesh, 0).size();
        if (ranks == 1) { return; }
        const auto hosts = detail::host_spread(axes, mesh, ranks_per_host);
        MovedBytes moved{bytes, detail::part_of(bytes, hosts.links, hosts.ranks)};
        if (verb == Verb::all_gather) { moved = detail::gather_moved(bytes, ranks, engine, hosts); }
        if (verb == Verb::reduce_scatter) { moved = detail::scatter_moved(bytes, ranks, engine, hosts); }
        if (verb == Verb::all_reduce) { moved = detail::all_reduce_moved(bytes, bytes, ranks, engine, hosts); }
        if (verb == Verb::all_to_all) {
            moved = {detail::part_from_peers(bytes, ranks),
                     detail::part_of(bytes, hosts.to_ranks, ranks * hosts.ranks)};
        }
        add(verb, axes, calls, bytes, moved);
    }
    /// Adds calls that not every rank makes, as the rounded mean of what so many ranks make together.
    constexpr void add_mean(Verb verb, const MeanTraffic& all, double ranks = 1) {
        const auto rounded = [&](double together) {
            const double exact = together / ranks;
            const auto down = static_cast<std::uint64_t>(exact);
            return exact - static_cast<double>(down) < 0.5 ? down : down + 1;
        };
        add_all(verb, all.axes, rounded(all.calls), rounded(all.payload),
                {rounded(all.moved), rounded(all.between_hosts)});
    }
    /// Adds the traffic of another plan.
    constexpr TrafficPlan& operator+=(const TrafficPlan& other) {
        for (const PlannedRow& of : other.rows()) { row(of.verb, of.axes).traffic += of.traffic; }
        return *this;
    }
    /// Adds calls of an uneven all-to-all over a group of `ranks` ranks, in which rank `from` sends bytes(from, to)
    /// to rank `to`, and host_of(rank) is a rank's host.
    template <class Bytes, class HostOf>
    constexpr void add_uneven(const PlannedAxes& axes, std::uint64_t calls, std::size_t ranks, const Bytes& bytes,
                              const HostOf& host_of) {
        if (ranks == 1 || calls == 0) { return; }
        std::uint64_t payload = 0;
        MovedBytes moved;
        std::uint64_t busiest = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            std::uint64_t sent = 0;
            std::uint64_t received = 0;
            for (std::size_t peer = 0; peer < ranks; ++peer) {
                payload += bytes(peer, rank);
                if (peer == rank) { continue; }
                sent += bytes(rank, peer);
                received += bytes(peer, rank);
                if (host_of(peer) != host_of(rank)) { moved.between_hosts += bytes(peer, rank); }
            }
            moved.bytes += received;
            busiest = std::max({busiest, sent, received});
        }
        const auto all = [&](std::uint64_t of_call) {
            return static_cast<double>(calls) * static_cast<double>(of_call);
        };
        add_mean(Verb::all_to_all_uneven,
                 {axes, all(ranks), all(payload), all(moved.bytes), all(moved.between_hosts)},
                 static_cast<double>(ranks));
        row(Verb::all_to_all_uneven, axes).traffic.busiest += ByteCount(calls * busiest);
    }
    friend constexpr bool operator==(const TrafficPlan& a, const TrafficPlan& b) noexcept {
        return std::equal(a.rows().begin(), a.rows().end(), b.rows().begin(), b.rows().end());
    }

    /// The verbs that a plan may have rows of.
    static constexpr std::array<Verb, 8> verbs{
        Verb::all_gather,        Verb::reduce_scatter, Verb::all_reduce, Verb::all_to_all,
        Verb::all_to_all_uneven, Verb::broadcast,      Verb::send,       Verb::receive};

  private:
    constexpr void add_all(Verb verb, const PlannedAxes& axes, std::uint64_t calls, std::uint64_t payload,
                           const MovedBytes& moved) {
        if (calls == 0 && payload == 0) { return; }
        row(verb, axes).traffic +=
            {calls, ByteCount(payload), ByteCount(moved.bytes), ByteCount(moved.between_hosts)};
    }
    constexpr PlannedRow& row(Verb verb, const PlannedAxes& axes) {
        for (std::size_t i = 0; i < count_; ++i) {
            if (rows_[i].verb == verb && rows_[i].axes == axes) { return rows_[i]; }
        }
        if (count_ == max_rows) { throw std::length_error("TrafficPlan: more than 32 rows"); }
        rows_[count_] = {verb, axes, {}};
        return rows_[count_++];
    }

    std::array<PlannedRow, max_rows> rows_{};
    std::size_t count_ = 0;
};

}  // namespace shardkit::planner

namespace shardkit::detail {

/// Returns whether the policies of two groups split a mesh equally, so that they have the same GroupAxes.
constexpr bool split_alike(const GroupDescription& a, const GroupDescription& b) noexcept {
    return a.policy.shard_group == b.policy.shard_group && a.policy.shard_axes == b.policy.shard_axes &&
           a.experts == b.experts;
}
/// The ranks that join a group's collectives.
struct GroupAxes {
    std::array<planner::PlannedAxes, all_over.size()> axes{};
    std::array<std::size_t, all_over.size()> ranks{};
    std::array<HostSpread, all_over.size()> hosts{};

    static constexpr GroupAxes of(const GroupDescription& g, const AxisGrid& mesh, std::size_t ranks_per_host = 0) {
        const GroupMesh its(mesh, g.policy, g.experts, g.path, SourceLocation::current());
        GroupAxes made;
        for (const Over over : all_over) {
            const auto i = static_cast<std::size_t>(over);
            made.axes[i] = planner::PlannedAxes::of_split(its.grid(), its.axes(over), g.policy);
            made.ranks[i] = its.ranks(over);
            made.hosts[i] = host_spread(made.axes[i], mesh, ranks_per_host);
        }
        return made;
    }
};

/// Returns what the sum of a norm over all ranks moves between a rank and its peers.
constexpr planner::MovedBytes moved_by_norm(const AxisGrid& mesh, const engine::Traits& engine,
                                            const HostSpread& hosts = {}) {
    constexpr std::uint64_t bytes = NormNumbers::sent * sizeof(double);
    return all_reduce_moved(bytes, bytes, mesh.size(), engine.of_sum(ReduceOp::sum, bytes, sizeof(double)), hosts);
}

/// Adds the sums of a group over tp. The ranks whose shards contain partial sums of the group make them.
constexpr void add_tp_sums(planner::MeanTraffic& sums, const GroupDescription& g, const PlacementTable& table,
                           const CollectiveRow& row, std::size_t ranks, const HostSpread& hosts, std::uint64_t calls,
                           const engine::Traits& engine) {
    const std::size_t holders = g.parts_of(table.reduced);
    const std::size_t each = g.sizes.of(table.find(row.target)->element);
    for (std::size_t shard = 0; shard < holders; ++shard) {
        const IndexRange held = shard_range(shard, g.numel_of(table.reduced), g.buffer_numel);
        const std::uint64_t bytes = intersect(held, g.tp_sum).size() * each;
        if (bytes == 0) { continue; }
        const auto share = static_cast<double>(calls) / static_cast<double>(holders);
        sums.calls += share;
        sums.payload += share * static_cast<double>(bytes);
        const engine::Traits its = engine.of_sum(ReduceOp::sum, bytes, each);
        const std::uint64_t sent = its.sums_travel_widened ? bytes / each * arithmetic_size(each) : bytes;
        const planner::MovedBytes moved = all_reduce_moved(sent, sent, ranks, its, hosts);
        sums.moved += share * static_cast<double>(moved.bytes);
        sums.between_hosts += share * static_cast<double>(moved.between_hosts);
    }
}

/// Returns what one call of a row moves between a rank and its peers, if there are several ranks. `numel` is the
/// number of elements of the row's larger buffer or, for a sum over tp, of the rank's part.
constexpr planner::MovedBytes moved_by_row(const GroupDescription& g, const PlacementTable& table,
                                           const CollectiveRow& row, std::size_t numel, std::size_t ranks,
                                           const engine::Traits& engine, const HostSpread& hosts = {}) {
    const std::size_t source = g.sizes.of(table.find(row.source)->element);
    const std::size_t target = g.sizes.of(table.find(row.target)->element);
    if (row.verb == Verb::all_gather) { return gather_moved(numel * source, ranks, engine, hosts); }
    const engine::Traits its = engine.of_sum(op_of(g.policy.summation), numel * source, source);
    const std::size_t arithmetic = arithmetic_size(target);
    const std::uint64_t addends = numel * (its.sums_travel_widened ? std::max(source, arithmetic) : source);
    const std::uint64_t sums = numel * (its.adds_16_bits ? source : its.sums_travel_widened ? arithmetic : target);
    return row.verb == Verb::all_reduce ? all_reduce_moved(addends, sums, ranks, its, hosts)
                                        : scatter_moved(addends, ranks, its, hosts);
}

/// Adds a row's calls to a plan, if there are several ranks.
constexpr void add_row(planner::TrafficPlan& plan, const GroupDescription& g, const PlacementTable& table,
                       const CollectiveRow& row, const planner::PlannedAxes& axes, std::size_t ranks,
                       const HostSpread& hosts, std::uint64_t calls, const engine::Traits& engine) {
    const std::size_t numel = g.numel_of(row.extent);
    plan.add(row.verb, axes, calls, numel * g.sizes.of(table.find(row.source)->element),
             moved_by_row(g, table, row, numel, ranks, engine, hosts));
}

/// Returns the traffic of a step that makes counts(group's rows, group's number) calls with each group.
template <class Counts>
constexpr planner::TrafficPlan traffic_of(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                          const planner::PlanOptions& options, const Counts& counts) {
    planner::TrafficPlan plan;
    planner::MeanTraffic tp_sums;
    GroupAxes group_axes;
    for (std::size_t number = 0; number < groups.size(); ++number) {
        const GroupDescription& g = groups[number];
        if (number == 0 || !split_alike(g, groups[number - 1])) {
            group_axes = GroupAxes::of(g, mesh, options.ranks_per_host);
        }
        const GroupRows rows(g);
        const StepCounts made = counts(rows, number);
        for (std::size_t i = 0; i < rows.collectives().size(); ++i) {
            const CollectiveRow& row = rows.collectives()[i];
            const auto over = static_cast<std::size_t>(row.over);
            const std::size_t ranks = group_axes.ranks[over];
            if (ranks == 1) { continue; }
            const planner::PlannedAxes& axes = group_axes.axes[over];
            const HostSpread& hosts = group_axes.hosts[over];
            if (row.extent == Extent::tp_sum) {
                tp_sums.axes = axes;
                add_tp_sums(tp_sums, g, rows, row, ranks, hosts, made.calls[i], options.engine);
            } else {
                add_row(plan, g, rows, row, axes, ranks, hosts, made.calls[i], options.engine);
            }
        }
    }
    plan.add_mean(Verb::all_reduce, tp_sums);
    if (mesh.size() > 1 && options.norms_per_step > 0) {
        plan.add(Verb::all_reduce, planner::PlannedAxes::world(), options.norms_per_step,
                 NormNumbers::sent * sizeof(double),
                 moved_by_norm(mesh, options.engine,
                               host_spread(planner::PlannedAxes::world(), mesh, options.ranks_per_host)));
    }
    return plan;
}

/// The counts of a plain step with each group.
struct PlainCounts {
    std::span<const GroupDescription> groups;
    const planner::PlanOptions& options;

    constexpr StepCounts operator()(const GroupRows& rows, std::size_t number) const {
        return plain_step(rows, options.microbatches,
                          groups[number].windows_per_microbatch.value_or(options.windows_per_microbatch));
    }
};

}  // namespace shardkit::detail

namespace shardkit::planner {

/// Returns the collectives of one training step in steady state.
/// @post with n = shards, gather bytes G and reduce bytes R, times (n - 1) / n: NoShard 2 R; ShardOptimizer
///       R + G; ShardGradOp M R + G; FullShard M (R + 2 G); hybrid as FullShard plus one all-reduce of R / n;
///       HybridOptimizer with a reduce-scatter of R / n and an all-gather of G / n in its place
/// Source:  ZeRO, arXiv 1910.02054, section 7; Chan et al. 2007 for the costs of collectives
constexpr TrafficPlan plan_traffic(std::span<const GroupDescription> groups, const AxisGrid& mesh,
                                   const PlanOptions& options = {}) {
    return detail::traffic_of(groups, mesh, options, detail::PlainCounts{groups, options});
}

}  // namespace shardkit::planner

namespace shardkit {

/// Returns the collectives of one step as a text table: verb, axes as in the log, calls, bytes moved per rank and, if
/// there are any, bytes between hosts.
inline std::string traffic_table(const planner::TrafficPlan& plan) {
    std::string table;
    bool hosts = false;
    for (const planner::PlannedRow& row : plan.rows()) { hosts = hosts || row.traffic.between_hosts.value > 0; }
    for (const Verb verb : planner::TrafficPlan::verbs) {
        for (const auto& [of, axes, traffic] : plan.rows()) {
            if (of != verb) { continue; }
            table += detail::traffic_line(verb, axes.label(), traffic.calls, traffic.moved);
            if (hosts) {
                std::array<char, 160> line{};
                std::snprintf(line.data(), line.size(), " %14s between hosts",
                              detail::human_bytes(traffic.between_hosts).c_str());
                table += line.data();
            }
            table += '\n';
        }
    }
    return table.empty() ? "  (nothing: every group has one rank)\n" : table;
}

}  // namespace shardkit
