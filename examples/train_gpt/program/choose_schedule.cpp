// SPDX-License-Identifier: Apache-2.0
#include "choose_schedule.hpp"

#include <limits>
#include <utility>
#include <vector>

#include <shardkit/schedule/batch_costs.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/simulate.hpp>

#include "../../common/text_format.hpp"

namespace train_gpt {

namespace {

// Of a processor of today and the memory between two. What a choice depends on is their ratio.
constexpr double operations_per_second = 1e10;
constexpr sk::planner::LinkModel link{10e-6, 2e9};

/// Gathers so many windows ahead, and reductions beside the next backward pass.
sk::Schedule overlapped(const sk::Schedule& step, std::span<const sk::planner::GroupDescription> groups,
                        std::size_t depth) {
    return sk::schedule::overlap_reductions(sk::schedule::prefetch(step, groups, depth), groups);
}

/// The same, with fewer windows ahead, or with the reductions where they were, if it takes too much memory.
sk::Schedule overlapped_within(const StepMemory& memory, const sk::Schedule& step,
                               std::span<const sk::planner::GroupDescription> groups, std::size_t depth) {
    const auto fits = [&](const sk::Schedule& s) {
        return sk::schedule::peak(s, groups, memory.optimizer_states) <= memory.most;
    };
    for (; depth > 0; --depth) {
        for (const auto& made : {overlapped(step, groups, depth), sk::schedule::prefetch(step, groups, depth)}) {
            if (fits(made)) { return made; }
        }
    }
    return step;
}

/// Seconds of a step for which it waits for communication.
double waited(const sk::Schedule& schedule, bool ahead, std::span<const sk::planner::GroupDescription> groups,
              const sk::AxisGrid& mesh, const sk::schedule::StepCosts& costs) {
    const auto lanes = ahead ? sk::schedule::CommunicationLanes::two : sk::schedule::CommunicationLanes::in_compute;
    return sk::schedule::simulate(sk::schedule::on_lanes(schedule, lanes), groups, mesh, costs).exposed();
}

}  // namespace

ChosenSchedule choose_schedule(const Options& options, const sk::Schedule& step,
                               std::span<const sk::planner::GroupDescription> groups, const sk::AxisGrid& mesh,
                               const sk::engine::Traits& engine, const StepMemory& memory,
                               const sk::planner::MatrixPlan& matrices) {
    using Kind = ScheduleChoice::Kind;
    if (options.schedule.kind == Kind::none) { return {}; }
    if (options.schedule.kind == Kind::prefetch) {
        const std::size_t depth = options.schedule.depth;
        return {memory.limited ? overlapped_within(memory, step, groups, depth) : overlapped(step, groups, depth),
                options.schedule.text(), "asked for", true};
    }
    const auto keep = [&](const sk::Schedule& s) {
        return sk::schedule::keep_gathered(s, groups, memory.most, memory.optimizer_states);
    };
    const auto ahead = [&](const sk::Schedule& s) { return overlapped_within(memory, s, groups, 1); };
    std::vector<ChosenSchedule> candidates{{keep(step), "keep_gathered"}};
    if (options.spare_processor) {
        candidates.push_back({keep(ahead(step)), "prefetch:1, keep_gathered", "", true});
        candidates.push_back({ahead(*candidates.front().schedule), "keep_gathered, prefetch:1", "", true});
    }
    const auto tokens = static_cast<double>(options.split().local(options.pass_shape()).tokens());
    std::vector<sk::schedule::GroupSeconds> seconds;
    for (const sk::planner::GroupDescription& group : groups) {
        // Of experts a token uses a few.
        const double used = group.experts ? static_cast<double>(options.model.top * options.ep) /
                                                static_cast<double>(options.model.experts)
                                          : 1;
        const double forward = 2 * tokens * used * static_cast<double>(group.buffer_numel) / operations_per_second;
        seconds.push_back({forward, 2 * forward, 0});
    }
    const sk::planner::TimeModel links{sk::planner::TimeModel::links(link)};
    const auto batches = sk::schedule::batch_seconds(matrices, mesh, links, {.cost = operations_per_second});
    const sk::schedule::StepCosts costs{.groups = seconds, .links = links, .engine = engine, .batches = batches};
    const bool fits = !memory.limited || memory.none <= memory.most;
    const double of_none = waited(step, false, groups, mesh, costs);
    ChosenSchedule chosen;
    chosen.why = mesh.size() == 1 ? "a single rank waits for no other" : "no schedule is predicted to wait less";
    double least = fits ? of_none : std::numeric_limits<double>::infinity();
    for (const ChosenSchedule& candidate : candidates) {
        const double now = waited(*candidate.schedule, candidate.ahead, groups, mesh, costs);
        if (now >= least) { continue; }
        least = now;
        chosen = candidate;
        chosen.why =
            fits ? program::formatted("predicted waiting %.0f %% of that without a schedule", 100 * least / of_none)
                 : "without a schedule the step exceeds --memory-limit";
    }
    return chosen;
}

}  // namespace train_gpt
