// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "facts.hpp"
#include "options.hpp"

namespace mesh_picture {

/// Makes the mesh's ranks as threads, trains two steps and asks every rank what it holds and what the second step
/// communicated.
/// @throws std::invalid_argument when tp does not divide a dimension that it splits
Facts record(const Options& options);

}  // namespace mesh_picture
