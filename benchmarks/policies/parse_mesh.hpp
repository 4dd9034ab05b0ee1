// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "../collectives/options.hpp"

namespace benchmarks::policies {

/// "2x1x1,4x1x2": meshes DPxTPxCP of at most most_ranks ranks each.
/// @throws InputError for anything else
std::vector<MeshExtents> parse_meshes(const std::string& flag, const std::string& given);

}  // namespace benchmarks::policies
