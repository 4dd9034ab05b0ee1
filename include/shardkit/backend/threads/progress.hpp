// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit::threads {

/// What a waiter finds in a WaitWord.
enum class Progress : std::uint8_t { pending, reached, poisoned };

}  // namespace shardkit::threads
