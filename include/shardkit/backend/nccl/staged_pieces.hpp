// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/world_state.hpp>

namespace shardkit::nccl::detail {

/// Elements [at, at + size) of a verb, and the staging memory that they use in the order of a stream.
struct StagedPiece {
    gpu::TimelineRef stream;
    std::byte* staging;
    std::size_t at;
    std::size_t size;
};
inline constexpr auto nothing_to_widen = [](const StagedPiece&) {};

/// Splits a verb into pieces of `rows` parts of elements of a size each that fit in the World's staging memory.
class StagedPieces {
  public:
    StagedPieces(const Call& call, std::size_t rows, std::size_t element_size)
        : call_(call),
          rows_(rows),
          size_(element_size),
          staging_(call.world.staging(call.stream).data()),
          elements_(call.world.staging(call.stream).size() / element_size) {}

    /// Calls f(staging, offset, size) for consecutive pieces of [0, count).
    template <class F>
    void one_after_the_other(std::size_t count, const F& f) {
        const std::size_t most = aligned(elements_ / rows_);
        for (std::size_t at = 0; at < count; at += most) {
            f(staging_, at, std::min(most, count - at));
            keep_pace();
        }
    }

    /// Makes a sum for consecutive pieces of [0, count), whose rows lie `stride` elements apart:
    ///     widen(piece)     converts the addends into the staging memory
    ///     add(piece)       adds them with NCCL
    ///     narrow(piece)    converts the sums out of it
    /// If not everything fits at once, pieces use the two halves of the memory in turn: while NCCL adds one piece,
    /// the previous one is narrowed and the next one widened, in the World's stream for conversions.
    template <class Widen, class Add, class Narrow>
    void summed(std::size_t count, std::size_t stride, const Widen& widen, const Add& add, const Narrow& narrow) {
        if (stride * rows_ > elements_) { return sum_in_two_streams(count, widen, add, narrow); }
        if (count == 0) { return; }
        const StagedPiece whole{call_.stream, staging_, 0, count};
        widen(whole);
        add(whole);
        narrow(whole);
    }

  private:
    template <class Widen, class Add, class Narrow>
    void sum_in_two_streams(std::size_t count, const Widen& widen, const Add& add, const Narrow& narrow) {
        const gpu::TimelineRef& stream = call_.stream;
        const gpu::TimelineRef aside = call_.world.conversions();
        const std::size_t half = aligned(elements_ / 2);
        const std::size_t most = aligned(half / rows_);
        std::array<Event, 2> added;
        const auto piece = [&](const gpu::TimelineRef& in, std::size_t number) {
            const std::size_t at = number * most;
            return StagedPiece{in, staging_ + number % 2 * half * size_, at, std::min(most, count - at)};
        };
        const auto narrow_behind = [&](std::size_t number) {
            aside.wait(added[number % 2]);
            narrow(piece(aside, number));
        };
        // The addends are written, and the previous verb has finished with the staging memory.
        aside.wait(stream.record());
        std::size_t number = 0;
        for (; number * most < count; ++number) {
            if (number >= 2) { narrow_behind(number - 2); }
            widen(piece(aside, number));
            stream.wait(aside.record());
            add(piece(stream, number));
            added[number % 2] = stream.record();
            keep_pace();
        }
        // A verb that needs more than half of the staging memory has at least two pieces.
        narrow_behind(number - 2);
        narrow_behind(number - 1);
        stream.wait(aside.record());
    }

    /// Counts several pieces as a verb: a verb of many pieces makes many launches, and CUDA accepts about 1,000.
    void keep_pace() {
        constexpr std::size_t pieces_of_a_verb = 8;
        if (++given_ % pieces_of_a_verb == 0) { call_.world.keep_pace(call_.stream, call_.where); }
    }

    /// Rounds down, so that all pieces begin at addresses for wide loads of NCCL and of kernels.
    std::size_t aligned(std::size_t count) const noexcept {
        constexpr std::size_t bytes = 128;
        return count / (bytes / size_) * (bytes / size_);
    }

    const Call& call_;
    std::size_t rows_;
    std::size_t size_;
    std::byte* staging_;
    std::size_t elements_;
    std::size_t given_ = 0;
};

}  // namespace shardkit::nccl::detail
