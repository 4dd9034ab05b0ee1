// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Copies elements between host memory and the engine's memory, or that of offloaded states, which is the host's.
/// Order:  stream-ordered; waits for the stream, so do not use it inside a step or a graph capture.
template <class T>
void copy(const gpu::TimelineRef& stream, std::span<const T> from, std::span<T> to,
          SourceLocation where = SourceLocation::current()) {
    static_assert(std::is_trivially_copyable_v<T>);
    require_size("copy", "to", to.size(), from.size(), where);
    stream.copy(from.data(), to.data(), from.size_bytes(), where);
}

}  // namespace shardkit::gpu::detail
