// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colours.hpp"
#include "draw.hpp"
#include "tensors.hpp"

namespace mesh_picture {

namespace {

constexpr double labels = 122;
constexpr double card = 214;
constexpr double gap = 12;
constexpr double header = 32;
constexpr double lane = 190;
constexpr std::size_t most_columns = 8;

/// Kinds that every rank holds alike; drawn once.
using Lane = std::vector<std::size_t>;

bool same_pieces(const std::vector<shardkit::ShardInfo>& a, const std::vector<shardkit::ShardInfo>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& x, const auto& y) { return x.parameter == y.parameter && x.range == y.range; });
}

std::vector<Lane> lanes_of(const Facts& facts) {
    std::vector<Lane> lanes;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        const auto alike = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& known) {
            return std::all_of(facts.ranks.begin(), facts.ranks.end(), [&](const RankFacts& rank) {
                return same_pieces(rank.held[known.front()], rank.held[k]);
            });
        });
        if (alike == lanes.end()) {
            lanes.push_back({k});
        } else {
            alike->push_back(k);
        }
    }
    return lanes;
}

/// What stands beside a lane, line by line.
std::vector<std::string> label_of(const Lane& kinds_of_lane) {
    const auto has = [&](std::size_t k) {
        return std::find(kinds_of_lane.begin(), kinds_of_lane.end(), k) != kinds_of_lane.end();
    };
    std::vector<std::string> lines;
    if (has(0)) { lines.emplace_back("parameters"); }
    if (has(1) && has(2)) {
        lines.emplace_back("gradients");
    } else if (has(1)) {
        lines.insert(lines.end(), {"gradients before", "they are reduced"});
    } else if (has(2)) {
        lines.emplace_back("reduced gradients");
    }
    if (has(3)) { lines.emplace_back("optimizer states"); }
    return lines;
}

/// The mesh on paper: the longer of dp and tp x cp lies from left to right, in lines of at most eight.
struct Arrangement {
    explicit Arrangement(const Facts& facts)
        : inner(facts.grid.extent("tp") * facts.grid.extent("cp")),
          dp(facts.ranks.size() / inner),
          across(dp > inner) {}

    std::size_t length() const { return across ? dp : inner; }
    std::size_t columns() const { return std::min(length(), most_columns); }
    std::size_t lines() const { return (length() + most_columns - 1) / most_columns; }
    std::size_t rows() const { return lines() * (across ? inner : dp); }
    /// Column and row.
    std::pair<std::size_t, std::size_t> place_of(const Facts& facts, std::size_t rank) const {
        const std::size_t i = facts.tp_of(rank) * facts.grid.extent("cp") + facts.cp_of(rank);
        const std::size_t along = across ? facts.dp_of(rank) : i;
        return {along % most_columns, (across ? i : facts.dp_of(rank)) * lines() + along / most_columns};
    }

    std::size_t inner;
    std::size_t dp;
    bool across;
};

/// "right: dp, down: tp, cp"
std::string order_text(const Facts& facts) {
    const Arrangement mesh(facts);
    std::string inner;
    for (const char* axis : {"tp", "cp"}) {
        if (facts.grid.extent(axis) > 1) { inner += (inner.empty() ? "" : ", ") + std::string(axis); }
    }
    const std::string dp = mesh.dp > 1 ? "dp" : "";
    const std::string right = mesh.across ? dp : inner;
    const std::string down = mesh.across ? inner : dp;
    return (right.empty() ? "" : "to the right: " + right) + (down.empty() ? "" : "; down: " + down);
}

/// One parameter as the rank's lane has it.
void draw_tensor(Svg& svg, const Facts& facts, std::size_t rank, std::size_t kind, std::size_t p, double x,
                 double y) {
    const ParameterFacts& parameter = facts.parameters[p];
    const shardkit::TensorPart& part = facts.ranks[rank].parts[p];
    const std::string_view colour = colour_of(facts, p, facts.part_of(rank));
    const Unit unit = unit_of(parameter.shape);
    svg.text(x, y - 4, std::string(parameter.name), {11, grey});
    svg.open(attribute("class", "tensor") + " " + attribute("data-parameter", parameter.name) + " " +
             attribute("data-shape", shape_text(parameter.shape)) + " " +
             attribute("data-part", shape_text(part.shape())) + " " +
             attribute("data-unit", Svg::number(unit.x) + " " + Svg::number(unit.y)));
    svg.rectangle(place(x, y, parameter.shape, part), attribute("class", "part") + " " + fill(colour, "0.16"));
    for (const shardkit::ShardInfo& info : facts.ranks[rank].held[kind]) {
        if (info.parameter != parameter.name) { continue; }
        for (const shardkit::layout::Box& box : info.boxes) {
            svg.rectangle(place(x, y, parameter.shape, box),
                          attribute("class", "held") + " " + attribute("data-begin", box.range.begin) + " " +
                              attribute("data-end", box.range.end) + " " + fill(colour));
        }
    }
    svg.rectangle(place(x, y, parameter.shape), attribute("class", "whole") + " " + outline("#9ca3af", "0.8"));
    svg.close();
}

/// The same pieces in the group's flat buffer.
void draw_strip(Svg& svg, const Facts& facts, std::size_t rank, std::size_t kind, const Rectangle& strip) {
    const double element = strip.width / static_cast<double>(facts.buffer_numel);
    const auto place_flat = [&](std::size_t begin, std::size_t end) {
        return Rectangle{strip.x + element * static_cast<double>(begin), strip.y,
                         element * static_cast<double>(end - begin), strip.height};
    };
    svg.rectangle(strip, fill(shade));
    for (std::size_t p = 0; p < facts.parameters.size(); ++p) {
        const ParameterFacts& parameter = facts.parameters[p];
        const std::string_view colour = colour_of(facts, p, facts.part_of(rank));
        svg.rectangle(place_flat(parameter.flat.begin, parameter.flat.end), fill(colour, "0.16"));
        for (const shardkit::ShardInfo& info : facts.ranks[rank].held[kind]) {
            if (info.parameter != parameter.name) { continue; }
            svg.rectangle(place_flat(parameter.flat.begin + info.range.begin, parameter.flat.begin + info.range.end),
                          fill(colour));
        }
        svg.rectangle(place_flat(parameter.flat.begin, parameter.flat.end), outline("#ffffff", "0.8"));
    }
}

void draw_lane(Svg& svg, const Facts& facts, std::size_t rank, const Lane& kinds_of_lane, double x, double y) {
    constexpr double column = 70;
    std::string names;
    for (const std::size_t k : kinds_of_lane) { names += (names.empty() ? "" : ", ") + std::string(kinds[k]); }
    svg.open(attribute("class", "lane") + " " + attribute("data-kinds", names));
    // Matrices side by side, and vectors below the last.
    double left = x;
    double below = y;
    for (std::size_t p = 0; p < facts.parameters.size(); ++p) {
        const shardkit::TensorShape& shape = facts.parameters[p].shape;
        if (p > 0 && shape.rank > 1) { left += column; }
        if (shape.rank > 1) { below = y; }
        draw_tensor(svg, facts, rank, kinds_of_lane.front(), p, left, below);
        below += place(0, 0, shape).height + 22;
    }
    draw_strip(svg, facts, rank, kinds_of_lane.front(), {x, y + 156, card - 24, 8});
    svg.close();
}

/// "dp 1, cp 0"
std::string coordinates_text(const Facts& facts, std::size_t rank) {
    std::string text;
    const auto add = [&](const char* axis, std::size_t coordinate, std::size_t extent) {
        if (extent > 1) { text += (text.empty() ? "" : ", ") + std::string(axis) + " " + std::to_string(coordinate); }
    };
    add("dp", facts.dp_of(rank), Arrangement(facts).dp);
    add("ep", facts.ep_of(rank), facts.ep());
    add("tp", facts.tp_of(rank), facts.grid.extent("tp"));
    add("cp", facts.cp_of(rank), facts.grid.extent("cp"));
    return text;
}

void draw_card(Svg& svg, const Facts& facts, std::size_t rank, const std::vector<Lane>& lanes, double x, double y) {
    svg.open(attribute("class", "rank") + " " + attribute("data-rank", rank) + " " +
             attribute("data-dp", facts.dp_of(rank)) + " " + attribute("data-tp", facts.tp_of(rank)) + " " +
             attribute("data-cp", facts.cp_of(rank)));
    svg.rectangle({x, y, card, header + lane * static_cast<double>(lanes.size())},
                  "rx=\"6\" fill=\"#ffffff\" stroke=\"" + std::string(faint) + "\"");
    svg.text(x + 12, y + 21, "rank " + std::to_string(rank), {14, ink, "start", true});
    svg.text(x + card - 12, y + 21, coordinates_text(facts, rank), {12, grey, "end"});
    for (std::size_t l = 0; l < lanes.size(); ++l) {
        const double top = y + header + lane * static_cast<double>(l);
        svg.line(x, top, x + card, top, "stroke=\"" + std::string(faint) + "\"");
        draw_lane(svg, facts, rank, lanes[l], x + 12, top + 18);
    }
    svg.close();
}

}  // namespace

double width_of_ranks(const Facts& facts) {
    const auto columns = static_cast<double>(Arrangement(facts).columns());
    return 2 * margin + labels + columns * (card + gap) - gap;
}

double draw_ranks(Svg& svg, const Facts& facts, double y, double width) {
    const Arrangement mesh(facts);
    const std::vector<Lane> lanes = lanes_of(facts);
    const double card_height = header + lane * static_cast<double>(lanes.size());
    svg.text(margin, y, "What each rank keeps between forward and backward passes", {16, ink, "start", true});
    svg.text(width - margin, y, order_text(facts), {12, grey, "end"});
    y += 16;
    for (std::size_t row = 0; row < mesh.rows(); ++row) {
        const double top = y + (card_height + gap) * static_cast<double>(row) + header;
        for (std::size_t l = 0; l < lanes.size(); ++l) {
            const double lane_top = top + lane * static_cast<double>(l);
            double line = lane_top + 28;
            for (const std::string& text : label_of(lanes[l])) {
                svg.text(margin, line, text, {12, ink});
                line += 16;
            }
            svg.text(margin, lane_top + 18 + 163, "in the flat buffer", {11, grey});
        }
    }
    for (std::size_t rank = 0; rank < facts.ranks.size(); ++rank) {
        const auto [column, row] = mesh.place_of(facts, rank);
        draw_card(svg, facts, rank, lanes, margin + labels + (card + gap) * static_cast<double>(column),
                  y + (card_height + gap) * static_cast<double>(row));
    }
    return y + (card_height + gap) * static_cast<double>(mesh.rows()) - gap;
}

}  // namespace mesh_picture
