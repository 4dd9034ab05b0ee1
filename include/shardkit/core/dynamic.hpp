// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// Marks an extent that is given at run time: of a parameter's shape, a mesh or a hybrid shard group.
inline constexpr std::size_t dynamic = static_cast<std::size_t>(-1);

}  // namespace shardkit
