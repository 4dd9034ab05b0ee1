// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "facts.hpp"
#include "options.hpp"

namespace mesh_picture {

/// The picture as the text of an SVG file.
std::string picture(const Options& options, const Facts& facts);

}  // namespace mesh_picture
