// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cuda/stream_ref.hpp>
#include <shardkit/backend/cuda/timeline_options.hpp>
#include <shardkit/backend/cuda/timeline_ref.hpp>
#include <shardkit/backend/cuda/timeline_state.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// A stream with what the library needs beside it: events and scratch memory, all made here, so that a step allocates
/// nothing. It neither moves nor copies; the stream outlives it.
/// Cost:    2 * events CUDA events and scratch_bytes of device memory; its end waits for the device.
class Timeline {
  public:
    /// @throws std::invalid_argument for no events; Error, also when the stream is not of that device
    explicit Timeline(StreamRef stream, const TimelineOptions& options = {},
                      SourceLocation where = SourceLocation::current())
        : state_(stream, options, where) {}

    TimelineRef ref() noexcept { return TimelineRef(state_); }

  private:
    TimelineState state_;
};

}  // namespace shardkit::gpu
