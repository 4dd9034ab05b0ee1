// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include "colours.hpp"
#include "svg.hpp"

namespace mesh_picture {

namespace {

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 64, 64> {};

constexpr double border = 16, left = 120, height = 26, row = 36, first_row = 54, slot_height = 20;
// A gather or a reduction takes 1.5, a forward pass 2, a backward pass 4, an update 0.5 of the picture's seconds.
constexpr sk::schedule::GroupSeconds computation{2, 4, 0.5};
constexpr double transfer = 1.5;

/// "fwd 0", "bwd 1", "g 2": what an operation that takes time is called in its bar; `backward`: of its group.
std::string label(const sk::schedule::Op& op, bool backward, bool both) {
    const std::string group = " " + std::to_string(op.group);
    switch (op.act) {
        case sk::schedule::Act::gather:
            return "g" + group;
        case sk::schedule::Act::reduce:
            return "r" + group;
        case sk::schedule::Act::update:
            return "u";
        default:
            return (both ? "fwd, bwd" : backward ? "bwd" : "fwd") + group;
    }
}

}  // namespace

std::string draw_step() {
    const sk::AxisGrid mesh = sk::DeviceMesh<4>{}.grid();
    std::vector<sk::planner::GroupDescription> groups;
    for (const char* path : {"layers.0", "layers.1", "layers.2"}) {
        groups.push_back(sk::describe_group<Weight, sk::FullShard>(path, {}, mesh));
    }
    // The compute stream, and one stream each for gathers and for reductions.
    const sk::Schedule step =
        sk::schedule::on_lanes(sk::schedule::prefetch(sk::schedule::layered_step(groups, {.norms = 0}), groups),
                               sk::schedule::CommunicationLanes::two);
    const std::vector<sk::schedule::GroupSeconds> seconds(groups.size(), computation);
    const double moved = 64.0 * 64 * sizeof(float) * 3 / 4;  // from three of four ranks
    const sk::schedule::StepTimes times =
        sk::schedule::simulate(step, groups, mesh, {seconds, {sk::planner::TimeModel::links({0, moved / transfer})}});
    double earliest = 0;  // a gather may begin behind its update, while the step before still updates others
    for (const sk::schedule::OpTime& time : times.ops) { earliest = std::min(earliest, time.begin); }
    const double width = 584 - left;
    const double unit = width / (times.seconds - earliest);
    const auto x = [&](double at) { return left + unit * (at - earliest); };

    Svg svg;
    svg.text(border, 24, "A step of three FullShard layers: prefetch(step, groups, 1)", {13, ink, "start", true});
    const std::array<const char*, 3> streams{"compute stream", "gathers", "reductions"};
    for (std::size_t s = 0; s < streams.size(); ++s) {
        const double y = first_row + row * static_cast<double>(s);
        svg.rectangle({left, y, width, height}, fill(shade));
        svg.text(border, y + 17, streams[s], {12, ink});
    }
    std::vector<char> backward(groups.size(), 0);
    std::vector<std::size_t> windows(groups.size(), 0);
    for (std::size_t i = 0; i < step.size(); ++i) {
        const sk::schedule::Op& op = step[i];
        if (op.act == sk::schedule::Act::zero) { backward[op.group] = 1; }
        const bool first = op.act == sk::schedule::Act::close && windows[op.group]++ == 0;
        const auto& [begin, end] = times.ops[i];
        if (end <= begin) { continue; }
        const bool computes = op.lane == sk::schedule::Lane::compute;
        const double y = first_row + row * (computes ? 0 : op.lane == sk::schedule::Lane::gather ? 1 : 2);
        const bool pale = op.act == sk::schedule::Act::reduce || (computes && backward[op.group] == 0);
        svg.rectangle({x(begin), y, unit * (end - begin) - 1, height},
                      fill(colour_of_tp(op.group), pale ? "0.45" : "0.85"));
        svg.text((x(begin) + x(end)) / 2, y + 17,
                 label(op, backward[op.group] != 0, first && backward[op.group] != 0), {10, ink, "middle"});
    }

    const sk::detail::SlotPlan plan = sk::detail::plan_slots(step, groups);
    const double slot_bytes = 64.0 * 64 * sizeof(float);
    const double slots_top = first_row + row * static_cast<double>(streams.size()) + 10;
    const double rows = static_cast<double>(plan.arena_bytes) / slot_bytes;
    svg.rectangle({left, slots_top, width, slot_height * rows}, fill(shade));
    svg.text(border, slots_top + 17, "arena, " + Svg::number(static_cast<double>(plan.arena_bytes) / 1024) + " KiB",
             {12, ink});
    for (const sk::detail::ScheduledSlot& slot : plan.slots) {
        const double begin = times.ops[slot.begin].begin, end = times.ops[slot.end].end;
        const bool gradients = slot.use == sk::detail::SlotUse::full_gradients;
        const double y = slots_top + slot_height * static_cast<double>(slot.offset) / slot_bytes;
        svg.rectangle({x(begin), y + 1, unit * (end - begin) - 1, slot_height - 2},
                      fill(colour_of_tp(slot.group), gradients ? "0.45" : "0.85"));
        svg.text((x(begin) + x(end)) / 2, y + 14,
                 (gradients ? "gradients " : "parameters ") + std::to_string(slot.group), {10, ink, "middle"});
    }
    svg.line(x(0), first_row - 6, x(0), slots_top + slot_height * rows,
             "stroke=\"" + std::string(grey) + "\" stroke-dasharray=\"3 3\"");
    svg.text(x(0), first_row - 10, "the step begins", {10, grey, "middle"});
    const double below = slots_top + slot_height * rows + 24;
    svg.text(border, below,
             "g: all-gather of parameters. r: reduce-scatter of gradients. u: update. Grey: the stream is idle.",
             {12, ink});
    svg.text(border, below + 18,
             "The rank waits for " + Svg::number(times.exposed()) + " of " + Svg::number(times.communication) +
                 " seconds of communication: for g 0, r 2 and the last r 0.",
             {12, ink});
    return svg.finish(600, below + 32, "A FullShard step on three streams, with its slots");
}

}  // namespace mesh_picture
