// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// Stands for a number of microbatches that is not known: gradients are added until they are reduced.
struct UntilReduced {};
/// The argument for an Accumulation whose number of microbatches is not known when it begins.
inline constexpr UntilReduced until_reduced{};

}  // namespace shardkit
