// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// Stands for a number of microbatches that is not known: gradients are added until they are reduced.
struct UntilReduced {};
/// The argument for an Accumulation whose number of microbatches is not known when it begins.
inline constexpr UntilReduced until_reduced{};

/// Marks an extent that is given at run time: of a parameter's shape, a mesh or a hybrid shard group.
inline constexpr std::size_t dynamic = static_cast<std::size_t>(-1);

}  // namespace shardkit
