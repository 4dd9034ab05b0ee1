// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fit_link.hpp"

namespace benchmarks::policies {

/// Links fitted to what `benchmarks/run collectives --json` wrote into these files.
/// `engine`: that they must be of; without one all must be of the first file's. The source in words says where ranks
/// shared processors.
/// @throws InputError that names the file for what cannot be read, is no such file or of another engine, and without
///         two sizes of each of step_verbs in groups of at least two ranks
FittedLinks fit_files(const std::vector<std::string>& files, std::optional<EngineKind> engine);

}  // namespace benchmarks::policies
