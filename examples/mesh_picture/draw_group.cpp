// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "colours.hpp"
#include "draw.hpp"
#include "tensors.hpp"

namespace mesh_picture {

namespace {

std::array<std::string, 2> placement_text(shardkit::TpPlacement tp) {
    switch (tp.kind) {
        case shardkit::TpPlacement::Kind::split:
            return {tp.dimension == 0 ? "tp splits rows" : "tp splits columns", ""};
        case shardkit::TpPlacement::Kind::partial_sum:
            return {"whole on each tp rank,", "gradients summed over tp"};
        case shardkit::TpPlacement::Kind::replicated:
            return {"whole on each tp rank", ""};
    }
    return {};
}

/// For each part that tp and ep make, its first rank.
std::vector<std::size_t> ranks_of_parts(const Facts& facts) {
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < facts.ranks.size(); ++r) {
        const bool known = std::any_of(ranks.begin(), ranks.end(),
                                       [&](std::size_t one) { return facts.part_of(one) == facts.part_of(r); });
        if (!known) { ranks.push_back(r); }
    }
    return ranks;
}

void draw_parameter(Svg& svg, const Facts& facts, std::size_t p, double x, double y) {
    const ParameterFacts& parameter = facts.parameters[p];
    for (const std::size_t rank : ranks_of_parts(facts)) {
        svg.rectangle(place(x, y, parameter.shape, facts.ranks[rank].parts[p]),
                      fill(colour_of(facts, p, facts.part_of(rank))) + " stroke=\"#ffffff\" stroke-width=\"0.8\"");
        if (!is_split(facts, p) && !facts.of_experts()) { break; }
    }
    const double beside = x + 58;
    svg.text(beside, y + 10, std::string(parameter.name), {13, ink, "start", true});
    svg.text(beside, y + 27, shape_text(parameter.shape), {12, grey});
    if (facts.grid.extent("tp") == 1) { return; }
    const auto lines = placement_text(parameter.tp);
    svg.text(beside, y + 44, lines[0], {11, grey});
    svg.text(beside, y + 58, lines[1], {11, grey});
}

/// A parameter's name in its part of the flat buffer; what lies under it shows above and below alone.
void draw_name(Svg& svg, const std::string& name, double middle, double y) {
    const double width = 6.6 * static_cast<double>(name.size()) + 4;
    svg.rectangle({middle - width / 2, y + 4, width, 14}, attribute("class", "name") + " fill=\"#ffffff\"");
    svg.text(middle, y + 15, name, {11, ink, "middle"});
}

/// The flat buffer of one tp rank, with the policy's cuts.
void draw_buffer(Svg& svg, const Facts& facts, double x, double y, double width) {
    constexpr double height = 22;
    const double element = width / static_cast<double>(facts.buffer_numel);
    const auto at = [&](std::size_t i) { return x + element * static_cast<double>(i); };
    svg.rectangle({x, y, width, height}, fill(shade));
    for (const ParameterFacts& parameter : facts.parameters) {
        const double begin = at(parameter.flat.begin);
        const double size = at(parameter.flat.end) - begin;
        svg.rectangle({begin, y, size, height}, "fill=\"#ffffff\" stroke=\"" + std::string(grey) + "\"");
    }
    const double shard = width / static_cast<double>(facts.shards);
    const bool narrow = shard < 70;
    const std::string stroke = "stroke=\"" + std::string(ink) + (narrow ? "\"" : "\" stroke-width=\"1.6\"");
    for (std::size_t s = 0; s < facts.shards && facts.shards > 1; ++s) {
        const double begin = x + shard * static_cast<double>(s);
        if (s > 0) { svg.line(begin, y - 5, begin, y + height + 18, stroke); }
        const std::string text = (narrow ? "" : "shard ") + std::to_string(s);
        svg.text(begin + shard / 2, y + height + 15, text, {11, grey, "middle"});
    }
    for (const ParameterFacts& parameter : facts.parameters) {
        const double begin = at(parameter.flat.begin);
        const double size = at(parameter.flat.end) - begin;
        if (size >= 70) { draw_name(svg, std::string(parameter.name), begin + size / 2, y); }
    }
}

}  // namespace

double draw_group(Svg& svg, const Facts& facts, double y, double width) {
    svg.text(margin, y, "The parameters, one group", {16, ink, "start", true});
    y += 18;
    // Matrices side by side, and vectors below each other behind them.
    std::size_t columns = 1;
    for (const ParameterFacts& parameter : facts.parameters) { columns += parameter.shape.rank > 1 ? 1 : 0; }
    const double column = (width - 2 * margin) / static_cast<double>(columns);
    double left = margin;
    double below = y;
    double tallest = 0;
    for (std::size_t p = 0; p < facts.parameters.size(); ++p) {
        draw_parameter(svg, facts, p, left, below);
        if (facts.parameters[p].shape.rank > 1) {
            left += column;
            tallest = std::max(tallest, place(0, 0, facts.parameters[p].shape).height);
        } else {
            below += 76;
        }
    }
    y += tallest + 28;
    const bool parts = facts.grid.extent("tp") > 1 || facts.of_experts();
    svg.text(margin, y + 5, parts ? "The flat buffer" : "Their flat", {12, ink});
    svg.text(margin, y + 20,
             !parts               ? "buffer"
             : facts.of_experts() ? "of a rank's experts"
                                  : "of each tp rank",
             {12, ink});
    const double begin = margin + 122;
    draw_buffer(svg, facts, begin, y - 6, width - margin - begin);
    return y + (facts.shards == 1 ? 20 : 36);
}

}  // namespace mesh_picture
