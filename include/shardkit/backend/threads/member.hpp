// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/padding.hpp>

namespace shardkit::threads {

/// What one rank has in a group. Only that rank writes it; its peers read `calls`.
struct alignas(padding) Member {
    /// The current call and the one before it: a rank may publish its next call while a slower peer still looks at
    /// this one, which happens after a barrier, the only verb without an exit wait.
    Call calls[2];
    std::uint64_t sequence = 0;
    std::uint32_t target = 0;  ///< the word's count at the end of the last phase
};

}  // namespace shardkit::threads
