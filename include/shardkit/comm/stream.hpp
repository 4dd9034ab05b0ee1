// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

struct CUstream_st;  // what CUDA's stream is a pointer to

namespace shardkit {

class Stream;

namespace engine {
class WorkQueue;
}

/// A point in the work of a stream, for which another stream, or the host, can wait. A default one has already
/// happened. Copying it allocates nothing.
class Event {
  public:
    Event() noexcept = default;
    Event(engine::WorkQueue& queue, std::uint64_t point) noexcept : queue_(&queue), point_(point) {}

    /// Returns what the stream's work waits in, that it is a point of; null: it has happened.
    engine::WorkQueue* queue() const noexcept { return queue_; }
    std::uint64_t point() const noexcept { return point_; }

  private:
    engine::WorkQueue* queue_ = nullptr;
    std::uint64_t point_ = 0;
};
static_assert(sizeof(Event) == 16);  // in registers: windows and gradients hand on several

namespace engine {

/// Named ranges, under which a profiler shows the work that the host gave to streams. They may end in any order.
class WorkRanges {
  public:
    virtual std::uint64_t start(const char* name) const noexcept = 0;
    virtual void end(std::uint64_t started) const noexcept = 0;

  protected:
    ~WorkRanges() = default;
};

/// Times of points in the work of a device's streams, which the device takes.
class WorkTimes : shardkit::detail::NotCopied {
  public:
    virtual ~WorkTimes() = default;
    /// Takes a time when the queue's work so far is done, as number `i`; the host does not wait.
    /// @pre the queue is in no graph capture
    virtual void take(WorkQueue& queue, std::size_t i) noexcept = 0;
    /// Returns the seconds between two of the times, and 0 where the second one was never taken.
    /// @pre  the host has waited for the work before both
    /// @throws what the device says of an error, then or when a time was to be taken
    virtual double seconds(std::size_t from, std::size_t to, SourceLocation where) const = 0;
};

/// What the work of a stream waits in: a thread of the host that runs functions, or a stream of a device. Only one
/// thread gives it work.
class WorkQueue : shardkit::detail::NotCopied {
  public:
    /// A function to copy, without its type: a queue's code is compiled once for all of them.
    class Function {
      public:
        static constexpr std::size_t most_bytes = 320;

        template <class F>
        [[gnu::always_inline]] Function(const F& function) noexcept  // NOLINT(google-explicit-constructor)
            : object(&function), size(sizeof(F)), call(&call_as<F>) {
            static_assert(sizeof(F) <= most_bytes, "the command captures more than a slot of a queue holds");
            static_assert(alignof(F) <= alignof(std::max_align_t));
            static_assert(std::is_trivially_copy_constructible_v<F> && std::is_trivially_destructible_v<F>);
        }

        const void* object;
        std::size_t size;
        void (*call)(void*);

      private:
        template <class F>
        static void call_as(void* function) {
            (*static_cast<F*>(function))();
        }
    };

    /// Returns whether its work is a device's, on memory of the device.
    bool on_device() const noexcept { return on_device_; }

    /// Submits a function of the host, and returns its position.
    /// @throws UsageError where the work is a device's
    virtual std::uint64_t submit(const Function& function) = 0;
    /// Returns an event behind all work so far.
    virtual Event record() noexcept = 0;
    /// Makes later work wait for an event of another queue; the host does not wait, unless one of the two is a
    /// device's and the other is not.
    virtual void wait(const Event& event) noexcept = 0;
    /// Makes the host wait for all work so far, or for the work before an event of this queue.
    /// @throws what the work threw, or says of its failure
    virtual void synchronize(SourceLocation where) = 0;
    virtual void synchronize(const Event& event, SourceLocation where) = 0;
    /// Wait likewise, without throwing: the next wait throws.
    virtual void settle() noexcept = 0;
    virtual void settle(const Event& event) noexcept = 0;

    // What devices do and say besides; see gpu::TimelineRef.

    /// Copies bytes between memory of the host and the device's. Behind the work so far; the host waits.
    virtual void copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/, SourceLocation /*where*/) {}
    /// Gives it a copy within the device's memory, or between that and pinned memory of the host; the host goes on.
    virtual void give_copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) {}
    /// Gives it function(object), which a thread of the host calls. It neither throws nor calls the engine.
    virtual void call_on_host(void (* /*function*/)(void*), void* /*object*/) {}

    virtual unsigned long long capture() noexcept { return 0; }
    virtual bool was_waited_for(const Event& /*event*/) const noexcept { return true; }
    virtual void trust(bool /*begins*/) noexcept {}
    virtual bool advanced(std::uint64_t& /*passed*/) const noexcept { return false; }
    virtual bool is_ahead(const Event& /*event*/) const noexcept { return false; }
    virtual const WorkRanges* ranges() const noexcept { return nullptr; }
    /// Returns memory for so many times, which the caller deletes; null for a queue of the host, which its clock
    /// times.
    virtual WorkTimes* make_times(std::size_t /*count*/, SourceLocation /*where*/) { return nullptr; }
    virtual CUstream_st* native() const noexcept { return nullptr; }
    virtual int device() const noexcept { return -1; }
    virtual std::span<std::byte> scratch() const noexcept { return {}; }

  protected:
    explicit WorkQueue(bool on_device = false) noexcept : on_device_(on_device) {}
    ~WorkQueue() = default;

  private:
    bool on_device_;
};

}  // namespace engine

/// A stream: work in the order in which it was given, in the caller before the call returns (a default stream), in a
/// thread of the host, or on a device. It is a reference: what its work waits in must outlive it, and only one thread
/// may use it.
class Stream {
  public:
    Stream() noexcept = default;
    explicit Stream(engine::WorkQueue& queue) noexcept : queue_(&queue) {}

    /// Returns whether work runs in the caller before the call returns.
    bool is_inline() const noexcept { return queue_ == nullptr; }
    /// Returns whether its work is a device's, on memory of the device.
    bool on_device() const noexcept { return queue_ != nullptr && queue_->on_device(); }
    /// Returns CUDA's own stream.
    /// @throws UsageError for a stream of the host
    CUstream_st* native(SourceLocation where = SourceLocation::current()) const {
        if (!on_device()) {
            throw_usage_error(where, "a stream of the host was given, expected one of a device: of the engine nccl");
        }
        return queue_->native();
    }
    bool runs_on(const engine::WorkQueue& queue) const noexcept { return queue_ == &queue; }

    /// Returns an event behind the work given to the stream so far.
    Event record() const noexcept { return queue_ == nullptr ? Event() : queue_->record(); }
    /// Makes later work of this stream wait for the event; an inline stream waits at once.
    /// @throws what work before the event threw, if this stream is inline
    void wait(const Event& event) const {
        if (event.queue() == nullptr || event.queue() == queue_) { return; }
        is_inline() ? event.queue()->synchronize(event, {}) : queue_->wait(event);
    }
    /// Waits likewise, and leaves an exception of the work to the next wait.
    void settle(const Event& event) const noexcept {
        if (event.queue() == nullptr || event.queue() == queue_) { return; }
        if (queue_ != nullptr) {
            queue_->wait(event);
        } else {
            event.queue()->settle(event);
        }
    }
    /// Makes the host wait for all work of the stream.
    /// @throws what the work threw, or says of its failure
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        if (queue_ != nullptr) { queue_->synchronize(where); }
    }
    /// Makes the host wait until an event of this stream has happened; does nothing for one of another stream.
    /// @throws the same
    void synchronize(const Event& event, SourceLocation where = SourceLocation::current()) const {
        if (queue_ != nullptr) { queue_->synchronize(event, where); }
    }
    /// Waits likewise for all work, and leaves an exception of it to the next wait.
    void settle() const noexcept {
        if (queue_ != nullptr) { queue_->settle(); }
    }

    /// Runs a function of the host, `work()`, in this stream's order. The work is copied, and must be trivially
    /// destructible and small.
    /// @throws UsageError where the stream is a device's
    template <class Work>
    [[gnu::always_inline]] void submit(const Work& work) const {
        if (queue_ != nullptr) {
            queue_->submit(work);
        } else {
            work();
        }
    }

    /// Copies bytes between memory of the host and that of a device whose stream it is, behind its work so far. The
    /// host waits.
    /// @pre on_device()
    void copy(const void* from, void* to, std::size_t bytes, SourceLocation where) const {
        if (queue_ != nullptr) { queue_->copy(from, to, bytes, where); }
    }

    /// Gives a device a copy within its memory, or between that and pinned memory of the host; the host goes on.
    /// @pre on_device()
    void give_copy(const void* from, void* to, std::size_t bytes) const {
        if (queue_ != nullptr) { queue_->give_copy(from, to, bytes); }
    }
    /// Gives a device's stream function(object), which a thread of the host calls. It neither throws nor calls the
    /// engine.
    /// @pre on_device()
    void call_on_host(void (*function)(void*), void* object) const {
        if (queue_ != nullptr) { queue_->call_on_host(function, object); }
    }

    /// Returns the graph capture that the stream is part of, 0: none.
    unsigned long long capture() const noexcept { return queue_ == nullptr ? 0 : queue_->capture(); }
    /// Returns whether the host has waited for an event of the stream by a `synchronize` of the whole stream, so that
    /// its work was done whatever happened since. True for streams of the host, whose work is never cut off; false
    /// for an event of a graph capture.
    bool was_waited_for(const Event& event) const noexcept {
        return queue_ == nullptr || queue_->was_waited_for(event);
    }
    /// Begins and ends a time in which `synchronize` waits also where work was cut off: for who reads what was done
    /// before.
    void trust(bool begins) const noexcept {
        if (queue_ != nullptr) { queue_->trust(begins); }
    }

    /// As those of its WorkQueue.
    engine::WorkTimes* make_times(std::size_t count, SourceLocation where) const {
        return queue_ == nullptr ? nullptr : queue_->make_times(count, where);
    }
    /// Takes a time as number `i` of `times`, which a stream of the same device has made.
    void take_time(engine::WorkTimes& times, std::size_t i) const noexcept { times.take(*queue_, i); }

    /// Returns the named ranges of its work; null: it has none.
    const engine::WorkRanges* ranges() const noexcept { return queue_ == nullptr ? nullptr : queue_->ranges(); }

  protected:
    engine::WorkQueue* queue_ = nullptr;
};

namespace detail {
/// Returns whether the host can read and write the memory that a stream's work is on.
inline bool host_reads(const Stream& stream) noexcept { return !stream.on_device(); }
}  // namespace detail

}  // namespace shardkit
