// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/comm/recorder.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::nccl::detail {

/// Returns whether any of the streams is part of a capture, during which the host must not wait.
inline bool captures(const Streams& streams) noexcept {
    return streams.compute.capture() != 0 || streams.communication.capture() != 0 || streams.reduction.capture() != 0;
}

/// Orders one rank's verbs: each runs after the one that was given before it, whatever their streams, and the host is
/// ahead of the GPU by a limited number of them. Verbs on the stream of reductions follow each other, and run beside
/// all others. For one thread, except where a function says otherwise.
class VerbOrder {
  public:
    /// A verb's turn: the work given to its stream until the end of the scope is the verb.
    class Turn : shardkit::detail::NotCopied {
      public:
        Turn(VerbOrder& order, const gpu::TimelineRef& stream, bool beside) noexcept
            : order_(order), stream_(stream), beside_(beside) {}
        ~Turn() { order_.mark(stream_, beside_); }

      private:
        VerbOrder& order_;
        gpu::TimelineRef stream_;
        bool beside_;
    };

    /// Orders verbs, with the host at most `ahead` of them ahead of the GPU.
    /// @param aborted  set before anything is aborted: what is over after that is not known to be done
    /// @throws std::invalid_argument when `ahead` is 0
    VerbOrder(std::size_t ahead, shardkit::detail::Recorder& recorder, const std::atomic<bool>& aborted,
              SourceLocation where)
        : recorder_(recorder), aborted_(aborted), marks_(ahead) {
        if (ahead == 0) { throw_invalid_argument(where, "nccl::Options: verbs_ahead is 0, expected at least 1"); }
    }

    /// Makes `stream` wait for the previous verb, but for nothing after it. `beside` means that it is the stream of
    /// reductions, which waits for no verb.
    [[nodiscard]] Turn next(const gpu::TimelineRef& stream, bool beside) noexcept {
        if (!beside && last_ && last_->stream.native() != stream.native()) { stream.wait(last_->event); }
        return Turn(*this, stream, beside);
    }
    /// Marks the stream's work since the previous mark as a verb.
    void mark(const gpu::TimelineRef& stream, bool beside) noexcept {
        const Mark made{stream, stream.record(), recorded_, recorder_.count()};
        recorded_ = made.end;
        {
            const std::lock_guard lock(mutex_);
            marks_[given_ % marks_.size()].emplace(made);
        }
        ++given_;
        if (!beside) { last_.emplace(made); }
    }
    /// Makes the host wait for the oldest verb if as many as allowed are running. Does nothing in a capture, which
    /// forbids waiting and runs nothing.
    /// @throws what the timeline's `synchronize` throws
    void wait_for_room(const Streams& streams, SourceLocation where) const {
        const std::optional<Mark>& oldest = marks_[given_ % marks_.size()];
        if (!oldest || captures(streams)) { return; }
        oldest->stream.synchronize(oldest->event, where);
        note_done(*oldest);
    }

    /// Tells the flight recorder which verbs are over. Returns whether any of the latest is still to be done. For any
    /// thread.
    bool is_behind() const noexcept {
        bool behind = false;
        for (const std::optional<Mark>& each : marks_) {
            std::optional<Mark> mark;
            {
                const std::lock_guard lock(mutex_);
                mark = each;
            }
            if (!mark) { continue; }
            if (mark->stream.is_ahead(mark->event)) {
                behind = true;
            } else {
                note_done(*mark);
            }
        }
        return behind;
    }

  private:
    struct Mark {
        gpu::TimelineRef stream;
        Event event;
        std::uint64_t begin;  // numbers of its calls in the flight recorder
        std::uint64_t end;
    };

    void note_done(const Mark& mark) const noexcept {
        if (aborted_) { return; }
        for (std::uint64_t number = mark.begin; number < mark.end; ++number) { recorder_.done(number); }
    }

    shardkit::detail::Recorder& recorder_;
    const std::atomic<bool>& aborted_;
    std::uint64_t recorded_ = 0;  // calls that belong to earlier marks
    mutable std::mutex mutex_;    // of marks_, which another thread reads

    std::vector<std::optional<Mark>> marks_;  // a ring buffer
    std::size_t given_ = 0;                   // number of marks so far
    std::optional<Mark> last_;                // last mark of the verbs that follow each other
};

}  // namespace shardkit::nccl::detail
