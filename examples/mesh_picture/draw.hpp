// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts.hpp"
#include "svg.hpp"

namespace mesh_picture {

inline constexpr double margin = 28;

/// Least width in which everything fits.
double width_of_ranks(const Facts& facts);

/// Each draws one part of the picture from `y` on and returns where it ends.
double draw_legend(Svg& svg, const Facts& facts, double y);
double draw_group(Svg& svg, const Facts& facts, double y, double width);
double draw_ranks(Svg& svg, const Facts& facts, double y, double width);
double draw_collectives(Svg& svg, const Facts& facts, double y, double width);

}  // namespace mesh_picture
