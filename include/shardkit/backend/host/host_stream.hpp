// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit::host {

/// Work of the host in order: in the caller before the call returns (a default stream), or on a CommandQueue's
/// thread. It is a reference: the queue must outlive it, and only one thread may submit to it.
class HostStream {
  public:
    class Event {
      public:
        Event() noexcept = default;

      private:
        friend HostStream;
        bool has_happened() const noexcept { return queue_ == nullptr; }
        /// Waits in the thread that submits to the queue. @throws what a command before the event threw
        void wait() const {
            if (queue_ != nullptr) { queue_->wait(position_); }
        }
        void settle() const noexcept {
            if (queue_ != nullptr) { queue_->await(position_); }
        }

        detail::CommandQueue* queue_ = nullptr;
        std::uint64_t position_ = 0;
    };

    HostStream() noexcept = default;
    HostStream(InlineStream /*same*/) noexcept {}  // implicit: a verb takes either
    explicit HostStream(detail::CommandQueue& queue) noexcept : queue_(&queue) {}

    /// Returns whether work runs in the caller before the call returns.
    bool is_inline() const noexcept { return queue_ == nullptr; }
    bool runs_on(const detail::CommandQueue& queue) const noexcept { return queue_ == &queue; }

    Event record() const noexcept {
        Event event;
        event.queue_ = queue_;
        if (queue_ != nullptr) { event.position_ = queue_->submitted(); }
        return event;
    }

    /// Makes later work of this stream wait for the event; an inline stream waits at once.
    /// @throws what a command before the event threw, if this stream is inline
    void wait(const Event& event) const {
        if (is_inline()) {
            event.wait();
        } else {
            settle(event);
        }
    }
    /// Waits likewise, and leaves an exception of a command to the next wait.
    void settle(const Event& event) const {
        if (event.has_happened() || event.queue_ == queue_) { return; }
        if (queue_ != nullptr) {
            queue_->submit([event, queue = queue_] { queue->await(*event.queue_, event.position_); });
        } else {
            event.settle();
        }
    }
    /// Makes the host wait for all work of the stream.
    /// @throws what a command threw
    void synchronize() const { record().wait(); }
    /// Waits likewise, and leaves an exception of a command to the next wait.
    void settle() const noexcept { record().settle(); }

    /// Runs `work()` in this stream's order. The work is copied, and must be trivially destructible and small.
    template <class Work>
    [[gnu::always_inline]] void submit(const Work& work) const {
        if (queue_ != nullptr) {
            queue_->submit(work);
        } else {
            work();
        }
    }

  private:
    detail::CommandQueue* queue_ = nullptr;
};

static_assert(Stream<HostStream>);

}  // namespace shardkit::host
