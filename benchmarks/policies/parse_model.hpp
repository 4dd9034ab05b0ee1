// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../examples/common/flags.hpp"
#include "options.hpp"

namespace benchmarks::policies {

/// --layers, --width and --vocabulary, or --shapes
inline constexpr std::size_t most_elements = std::size_t{1} << 44U;

/// Fills in the groups of the model and its description.
/// @throws InputError for both ways at once, and for a model of more than most_elements
void read_model(const program::Flags& flags, Options& options);

}  // namespace benchmarks::policies
