// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace shardkit {

/// Totals of global norms that a rank keeps in its engine's memory at a time; they take turns.
inline constexpr std::size_t norm_slots = 16;

}  // namespace shardkit
