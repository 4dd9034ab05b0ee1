// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "facts.hpp"

namespace mesh_picture {

inline constexpr std::string_view ink = "#1f2937";
inline constexpr std::string_view grey = "#6b7280";
inline constexpr std::string_view faint = "#d1d5db";
inline constexpr std::string_view shade = "#f3f4f6";
/// Of what is not split over tp.
inline constexpr std::string_view neutral = "#4b5563";

/// Source: Okabe and Ito, Color Universal Design: colours that colour-blind people tell apart
inline std::string_view colour_of_tp(std::size_t tp) {
    constexpr std::array<std::string_view, 8> colours{"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                                      "#56B4E9", "#D55E00", "#F0E442", "#000000"};
    return colours[tp % colours.size()];
}

inline bool is_split(const Facts& facts, std::size_t parameter) {
    return facts.parameters[parameter].tp.kind == shardkit::TpPlacement::Kind::split;
}

/// Of a rank's part of a parameter.
inline std::string_view colour_of(const Facts& facts, std::size_t parameter, std::size_t part) {
    const bool cut = facts.grid.extent("tp") == 1 || facts.of_experts() || is_split(facts, parameter);
    return cut ? colour_of_tp(part) : neutral;
}

inline std::string fill(std::string_view colour, std::string_view opacity = "1") {
    return "fill=\"" + std::string(colour) + "\"" +
           (opacity == "1" ? "" : " fill-opacity=\"" + std::string(opacity) + "\"");
}
inline std::string outline(std::string_view colour, std::string_view width = "1") {
    return "fill=\"none\" stroke=\"" + std::string(colour) + "\" stroke-width=\"" + std::string(width) + "\"";
}

}  // namespace mesh_picture
