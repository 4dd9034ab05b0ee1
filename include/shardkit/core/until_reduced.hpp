// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// Says, in the place of a number of microbatches, that gradients are added until they are reduced.
struct UntilReduced {};
/// For an Accumulation whose number of microbatches is not known when it begins.
inline constexpr UntilReduced until_reduced{};

}  // namespace shardkit
