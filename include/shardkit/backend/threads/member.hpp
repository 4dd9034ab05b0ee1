// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/threads/call.hpp>
#include <shardkit/backend/threads/padding.hpp>

namespace shardkit::threads {

/// An input of at most so many bytes travels with the call: its rank need not wait until the peers have read it.
inline constexpr std::size_t carried_bytes = 256;

/// What a rank shows its peers in one collective: its call and, if it is small, its input in the lines that follow.
struct alignas(padding) Published {
    alignas(64) Call call;
    alignas(64) std::byte carried[carried_bytes];
};

/// What one rank has in a group. Only that rank writes it; its peers read `published`.
struct Member {
    /// The current collective and the one before it: a rank may publish its next call while a slower peer still looks
    /// at this one, where nobody waits for the exit. It cannot publish the one after: for that all must enter the
    /// next.
    Published published[2];
    alignas(padding) std::uint64_t sequence = 0;  ///< collectives before the next one
    std::uint32_t target = 0;                     ///< the word's count at the end of the last phase
};

}  // namespace shardkit::threads
