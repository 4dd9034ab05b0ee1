// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit::host {

/// Host work in order: in the caller before the call returns (a default stream), or on a CommandQueue's thread.
/// A reference; the queue outlives it and is submitted to by one thread only.
class HostStream {
  public:
    class Event {
      public:
        Event() noexcept = default;

      private:
        friend HostStream;
        Event(detail::CommandQueue* queue, std::uint64_t position) noexcept : queue_(queue), position_(position) {}
        detail::CommandQueue* queue_ = nullptr;
        std::uint64_t position_ = 0;
    };

    HostStream() noexcept = default;
    explicit HostStream(detail::CommandQueue& queue) noexcept : queue_(&queue) {}

    /// Whether work runs in the caller.
    bool is_inline() const noexcept { return queue_ == nullptr; }
    bool runs_on(const detail::CommandQueue& queue) const noexcept { return queue_ == &queue; }

    Event record() const noexcept { return is_inline() ? Event() : Event(queue_, queue_->submitted()); }

    /// Later work of this stream runs after the event: an inline stream waits at once.
    /// @throws what a command before the event threw, if this stream is inline
    void wait(const Event& event) const {
        if (event.queue_ == nullptr || event.queue_ == queue_) { return; }
        if (is_inline()) {
            event.queue_->wait(event.position_);
        } else {
            queue_->submit([event] { event.queue_->await(event.position_); });
        }
    }
    /// @throws what a command threw
    void synchronize() const {
        if (!is_inline()) { queue_->wait(queue_->submitted()); }
    }

    /// Runs `work()` in this stream's order. It is copied, and must be trivially destructible and small.
    template <class Work>
    void submit(const Work& work) const {
        if (is_inline()) {
            work();
        } else {
            queue_->submit(work);
        }
    }

  private:
    detail::CommandQueue* queue_ = nullptr;
};

static_assert(Stream<HostStream>);

}  // namespace shardkit::host
