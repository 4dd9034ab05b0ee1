// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

/// This program holds the library twice: checked_test.cpp is a checked build, unchecked_test.cpp is not. What they
/// show each other has the same type in both.
namespace both_builds {

enum class Case { no_shard, full_shard, hybrid_shard, full_shard_bf16 };

/// Final parameters and norms of rank 0, from training in the unchecked build.
std::vector<double> trained_unchecked(Case which);

}  // namespace both_builds
