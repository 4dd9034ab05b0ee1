// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/rank/streams.hpp>

namespace shardkit::nccl::detail {

/// Says whether any of them is part of a capture, which forbids that the host waits.
inline bool captures(const Streams<gpu::TimelineRef>& streams) noexcept {
    return streams.compute.capture() != 0 || streams.communication.capture() != 0 || streams.reduction.capture() != 0;
}

/// Orders one rank's verbs: each runs after the one that was given before it, whatever streams they are given
/// to, and the host is ahead of the GPU by so many of them at most. Verbs of the stream of reductions follow each
/// other, and run beside all others. One thread.
class VerbOrder {
  public:
    /// Holds a verb's turn: what its stream is given until the end of the scope is the verb.
    class Turn {
      public:
        Turn(VerbOrder& order, const gpu::TimelineRef& stream, bool beside) noexcept
            : order_(order), stream_(stream), beside_(beside) {}
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        ~Turn() { order_.mark(stream_, beside_); }

      private:
        VerbOrder& order_;
        gpu::TimelineRef stream_;
        bool beside_;
    };

    /// Orders verbs, with the host at most `ahead` of them before the GPU.
    /// @throws std::invalid_argument when `ahead` is 0
    VerbOrder(std::size_t ahead, SourceLocation where) : marks_(ahead) {
        if (ahead == 0) { throw_invalid_argument(where, "nccl::Options: verbs_ahead is 0, expected at least 1"); }
    }

    /// Lets `stream` wait for the verb before, but for nothing that came after that one. `beside`: it is the stream
    /// of reductions, and waits for no verb.
    [[nodiscard]] Turn next(const gpu::TimelineRef& stream, bool beside) noexcept {
        if (!beside && last_ && last_->stream.native() != stream.native()) { stream.wait(last_->event); }
        return Turn(*this, stream, beside);
    }
    /// Marks what was given to the stream since the mark before as a verb.
    void mark(const gpu::TimelineRef& stream, bool beside) noexcept {
        const Mark made{stream, stream.record()};
        marks_[given_ % marks_.size()].emplace(made);
        ++given_;
        if (!beside) { last_.emplace(made); }
    }
    /// Lets the host wait for one of the verbs, when as many as there may be are under way. Not in a capture, which
    /// forbids it and runs nothing.
    /// @throws what the timeline's `synchronize` throws
    void wait_for_room(const Streams<gpu::TimelineRef>& streams, SourceLocation where) const {
        const std::optional<Mark>& oldest = marks_[given_ % marks_.size()];
        if (!oldest || captures(streams)) { return; }
        oldest->stream.synchronize(oldest->event, where);
    }

  private:
    struct Mark {
        gpu::TimelineRef stream;
        gpu::TimelineRef::Event event;
    };

    std::vector<std::optional<Mark>> marks_;  // a ring
    std::size_t given_ = 0;                   // marks, ever
    std::optional<Mark> last_;                // of those that follow each other whatever their streams
};

}  // namespace shardkit::nccl::detail
