// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit {

/// Whether more microbatches of this step will add gradients to a group. `last` lets its reduction start.
enum class Microbatch : std::uint8_t { more, last };

}  // namespace shardkit
