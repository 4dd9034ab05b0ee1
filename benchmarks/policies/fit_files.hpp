// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fit_link.hpp"

namespace benchmarks::policies {

/// Links fitted to what `benchmarks/run collectives --json` wrote into these files.
/// @throws InputError that names the file for what cannot be read or is no such file, and without two sizes of each
/// of
///         step_verbs in groups of at least two ranks
FittedLinks fit_files(const std::vector<std::string>& files);

}  // namespace benchmarks::policies
