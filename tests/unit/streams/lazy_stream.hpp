// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <shardkit/comm/stream.hpp>

namespace lazy {

/// When a stream runs what is given to it: at once, or as late as its order allows, that is when somebody waits for
/// it. Work that a missing wait lets run too late (or too early) then does so every time.
enum class Pace : unsigned char { eager, lazy };

/// A queue of host work that behaves like an asynchronous stream in the least favourable way.
class Stream {
  public:
    class Event {
      public:
        Event() = default;

      private:
        friend Stream;
        Event(std::shared_ptr<struct Queue> queue, std::size_t position)
            : queue_(std::move(queue)), position_(position) {}
        std::shared_ptr<struct Queue> queue_;
        std::size_t position_ = 0;
    };

    Stream();

    void set_pace(Pace pace) const;
    void submit(std::function<void()> work) const;
    Event record() const;
    /// Later work of this stream runs after the event.
    void wait(const Event& event) const;
    void synchronize() const;
    /// Whether all work was run.
    bool idle() const;

  private:
    std::shared_ptr<Queue> queue_;
};

struct Queue {
    Pace pace = Pace::eager;
    std::vector<std::function<void()>> work;
    std::size_t done = 0;

    void run_until(std::size_t position) {
        while (done < position) {
            const auto next = std::move(work[done]);
            ++done;
            next();
        }
    }
};

inline Stream::Stream() : queue_(std::make_shared<Queue>()) {}
inline void Stream::set_pace(Pace pace) const { queue_->pace = pace; }
inline void Stream::submit(std::function<void()> work) const {
    queue_->work.push_back(std::move(work));
    if (queue_->pace == Pace::eager) { synchronize(); }
}
inline Stream::Event Stream::record() const { return {queue_, queue_->work.size()}; }
inline void Stream::wait(const Event& event) const {
    if (event.queue_ == nullptr || event.queue_ == queue_) { return; }
    submit([event] { event.queue_->run_until(event.position_); });
}
inline void Stream::synchronize() const { queue_->run_until(queue_->work.size()); }
inline bool Stream::idle() const { return queue_->done == queue_->work.size(); }

static_assert(shardkit::Stream<Stream>);

}  // namespace lazy
