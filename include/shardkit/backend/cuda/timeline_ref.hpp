// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/timeline_state.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit::gpu {

class Timeline;

/// A reference to a Timeline, and the Stream of the engines that run on CUDA devices. The timeline outlives it, its
/// events and those who wait for them; one host thread uses it.
///
/// `record` and `wait` return at once, allocate nothing and do not throw, because windows end in destructors: an
/// error of theirs is kept, and every later `synchronize` of that timeline throws it, as an edge of the order is
/// missing. Waiting for the timeline's own event does nothing.
///
/// During the capture of a CUDA graph an event belongs to the capture that it was recorded in. Waiting in a capture
/// for an event from outside of it, or after the capture for an event from inside, does nothing: the launch of the
/// graph is what is ordered. Waiting for an event of a capture that still runs makes the waiting stream part of that
/// capture. A step is therefore captured, and its graph launched, so:
///     begin the capture in compute;  communication.wait(compute.record());
///     the step;
///     compute.wait(communication.record());  end the capture in compute;
///     after it, also when an exception ended it: compute.wait(communication.record());
///     communication.wait(compute.record());
///     communication's earlier work:  compute.wait(communication.record());  launch the graph in compute;
///     communication's later work:  communication.wait(compute.record()).
class TimelineRef {
  public:
    /// A point of one timeline. A default one has happened. Copying it allocates nothing.
    using Event = TimelineState::Event;

    /// Marks the work given to the stream so far.
    Event record() const noexcept { return state_->record(); }
    /// Work given to the stream from here on runs after the event; the host does not wait.
    void wait(const Event& event) const noexcept { state_->wait(event); }
    /// Waits in the host until all work given to the stream so far is over; the timeline's Watch is polled meanwhile.
    /// @throws Error of the stream's work, or of an earlier `record` or `wait`; what the Watch throws
    void synchronize(SourceLocation where = SourceLocation::current()) const { state_->synchronize(where); }

    /// The capture of a CUDA graph that the stream is part of, 0: none.
    unsigned long long capture() const noexcept { return state_->capture(); }

    cudaStream_t native() const noexcept { return state_->stream().native(); }
    /// Device memory for the temporary storage of the kernel that is enqueued next.
    std::span<std::byte> scratch() const noexcept { return state_->scratch(); }
    int device() const noexcept { return state_->device(); }

  private:
    friend Timeline;
    explicit TimelineRef(TimelineState& state) noexcept : state_(&state) {}
    TimelineState* state_;
};

static_assert(shardkit::Stream<TimelineRef>);

}  // namespace shardkit::gpu
