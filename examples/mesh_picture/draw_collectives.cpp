// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/verb.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/mesh/axes.hpp>

#include "colours.hpp"
#include "draw.hpp"

namespace mesh_picture {

namespace sk = shardkit;

namespace {

/// One collective of a call: which ranks ran it, in which groups, and what they moved.
struct Collective {
    sk::Verb verb{};
    std::string axes;
    std::vector<std::vector<std::size_t>> groups;
    std::uint64_t calls = 0;
    std::uint64_t least_moved = 0;
    std::uint64_t most_moved = 0;
};

/// The ranks with which `rank` communicates over the axes that a log calls `axes`: "dp x cp".
std::vector<std::size_t> members(const Facts& facts, const std::string& axes, std::size_t rank) {
    std::vector<std::string_view> names;
    for (std::size_t begin = 0; begin < axes.size();) {
        const std::size_t end = std::min(axes.find(" x ", begin), axes.size());
        const std::string_view name = std::string_view(axes).substr(begin, end - begin);
        for (std::size_t i = 0; i < facts.grid.axis_count(); ++i) {
            const std::string_view axis = facts.grid.axis(i).name;
            const bool is_dp = axis == sk::DpReplicate::name || axis == sk::DpShard::name;
            if (name == "world" || name == axis || (name == sk::Dp::name && is_dp)) { names.push_back(axis); }
        }
        begin = end + 3;
    }
    const sk::RankGroup group = facts.grid.group(names, rank);
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < group.size(); ++i) { ranks.push_back(group.member(i)); }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

std::vector<Collective> collectives_of(const Facts& facts, std::size_t call) {
    std::vector<Collective> found;
    for (std::size_t r = 0; r < facts.ranks.size(); ++r) {
        for (const sk::TrafficLog::Entry& entry : facts.ranks[r].traffic[call]) {
            auto known = std::find_if(found.begin(), found.end(), [&](const Collective& c) {
                return c.verb == entry.verb && c.axes == entry.axes;
            });
            if (known == found.end()) {
                found.push_back({entry.verb, entry.axes, {}, entry.calls, entry.moved.value, entry.moved.value});
                known = found.end() - 1;
            }
            known->calls = std::max(known->calls, entry.calls);
            known->least_moved = std::min(known->least_moved, entry.moved.value);
            known->most_moved = std::max(known->most_moved, entry.moved.value);
            std::vector<std::size_t> group = members(facts, entry.axes, r);
            if (group.front() == r) { known->groups.push_back(std::move(group)); }
        }
    }
    return found;
}

/// For each group the line on which it is drawn: groups that reach over each other get lines of their own.
std::vector<std::size_t> lines_of(const std::vector<std::vector<std::size_t>>& groups) {
    std::vector<std::size_t> lines;
    std::vector<std::size_t> ends;  // the last rank on each line
    for (const auto& group : groups) {
        const auto free =
            std::find_if(ends.begin(), ends.end(), [&](std::size_t end) { return end < group.front(); });
        lines.push_back(static_cast<std::size_t>(free - ends.begin()));
        if (free == ends.end()) {
            ends.push_back(group.back());
        } else {
            *free = group.back();
        }
    }
    return lines;
}

/// A group of ranks with the same part has its colour.
std::string_view colour_of_group(const Facts& facts, const std::vector<std::size_t>& group) {
    const bool one = std::all_of(group.begin(), group.end(),
                                 [&](std::size_t r) { return facts.part_of(r) == facts.part_of(group.front()); });
    return one ? colour_of_tp(facts.part_of(group.front())) : neutral;
}

std::string moved_text(const Collective& c) {
    const std::string least =
        c.least_moved == c.most_moved ? "" : sk::detail::human_bytes(sk::ByteCount(c.least_moved)) + " to ";
    return least + sk::detail::human_bytes(sk::ByteCount(c.most_moved));
}

/// Columns of the table.
struct Columns {
    Columns(const Facts& facts, double width) {
        const double room = width - margin - 200 - ranks;
        step = std::clamp(room / static_cast<double>(facts.ranks.size()), 14.0, 44.0);
        calls = ranks + step * static_cast<double>(facts.ranks.size()) + 40;
    }
    double rank(std::size_t r) const { return ranks + step * (static_cast<double>(r) + 0.5); }

    double call = margin + 12;
    double verb = margin + 152;
    double axes = margin + 274;
    double ranks = margin + 400;
    double step = 0;
    double calls = 0;
};

constexpr double line_height = 13;

double draw_collective(Svg& svg, const Facts& facts, const Columns& columns, std::string_view call,
                       const Collective& c, double y) {
    const std::vector<std::size_t> lines = lines_of(c.groups);
    const std::size_t count = lines.empty() ? 1 : *std::max_element(lines.begin(), lines.end()) + 1;
    const double height = std::max(28.0, line_height * static_cast<double>(count) + 14);
    const double base = y + height / 2 + 4;
    svg.open(attribute("class", "collective") + " " + attribute("data-call", call) + " " +
             attribute("data-verb", name(c.verb)) + " " + attribute("data-axes", c.axes) + " " +
             attribute("data-calls", c.calls) + " " + attribute("data-moved", c.most_moved));
    svg.text(columns.verb, base, std::string(name(c.verb)), {13, ink, "start", true});
    svg.text(columns.axes, base, "over " + c.axes, {12, ink});
    const double first = y + (height - line_height * static_cast<double>(count - 1)) / 2;
    for (std::size_t g = 0; g < c.groups.size(); ++g) {
        const std::vector<std::size_t>& group = c.groups[g];
        const double at = first + line_height * static_cast<double>(lines[g]);
        const std::string_view colour = colour_of_group(facts, group);
        std::string ranks;
        for (const std::size_t r : group) { ranks += (ranks.empty() ? "" : " ") + std::to_string(r); }
        svg.open(attribute("class", "group") + " " + attribute("data-ranks", ranks));
        svg.line(columns.rank(group.front()), at, columns.rank(group.back()), at,
                 "stroke=\"" + std::string(colour) + "\" stroke-width=\"3\"");
        for (const std::size_t r : group) { svg.circle(columns.rank(r), at, 5, fill(colour)); }
        svg.close();
    }
    svg.text(columns.calls, base, std::to_string(c.calls), {13, ink, "end"});
    svg.text(columns.calls + 24, base, moved_text(c), {13, ink});
    svg.close();
    return y + height;
}

}  // namespace

double draw_collectives(Svg& svg, const Facts& facts, double y, double width) {
    const Columns columns(facts, width);
    svg.text(margin, y, "Which ranks communicate in a step", {16, ink, "start", true});
    y += 30;
    const TextStyle heading{12, grey};
    svg.text(columns.call, y, "call", heading);
    svg.text(columns.verb, y, "collective", heading);
    svg.text(columns.rank(0) - 28, y, "rank", {12, grey, "end"});
    for (std::size_t r = 0; r < facts.ranks.size(); ++r) {
        svg.text(columns.rank(r), y, std::to_string(r), {columns.step < 18 ? 9.0 : 12.0, ink, "middle"});
    }
    svg.text(columns.calls, y, "calls", {12, grey, "end"});
    svg.text(columns.calls + 24, y, "moved by each rank", heading);
    y += 10;
    for (std::size_t call = 0; call < calls.size(); ++call) {
        const double top = y;
        const std::vector<Collective> found = collectives_of(facts, call);
        svg.line(margin, y, width - margin, y, "stroke=\"" + std::string(faint) + "\"");
        for (const Collective& collective : found) {
            y = draw_collective(svg, facts, columns, calls[call], collective, y);
        }
        if (found.empty()) {
            svg.text(columns.verb, y + 18, "nothing", {12, grey});
            y += 28;
        }
        svg.text(columns.call, (top + y) / 2 + 4, std::string(calls[call]), {13, ink});
    }
    svg.line(margin, y, width - margin, y, "stroke=\"" + std::string(faint) + "\"");
    return y;
}

}  // namespace mesh_picture
