// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/world_state.hpp>

namespace shardkit::nccl::detail {

/// Splits a verb into pieces of `rows` parts of elements of a size each that fit in the World's staging memory.
class StagedPieces {
  public:
    StagedPieces(const Call& call, const gpu::TimelineRef& stream, std::size_t rows, std::size_t element_size)
        : call_(call),
          stream_(stream),
          rows_(rows),
          size_(element_size),
          staging_(call.world.staging(stream).data()),
          elements_(call.world.staging(stream).size() / element_size) {}

    /// Calls f(staging, offset, size) for consecutive pieces of [0, count).
    template <class F>
    void one_after_the_other(std::size_t count, const F& f) {
        const std::size_t most = aligned(elements_ / rows_);
        for (std::size_t at = 0; at < count; at += most) {
            f(staging_, at, std::min(most, count - at));
            keep_pace();
        }
    }

    /// Makes a sum for consecutive pieces of [0, count):
    ///     sum.widen(stream, staging, offset, size)     converts the addends into the staging memory
    ///     sum.add(stream, staging, offset, size)       adds them with NCCL
    ///     sum.narrow(stream, staging, offset, size)    converts the sums out of it
    /// If not everything fits at once, pieces use the two halves of the memory in turn: while NCCL adds one piece,
    /// the previous one is narrowed and the next one widened, in the World's stream for conversions.
    /// `stride`: the number of elements by which the rows lie apart.
    template <class Sum>
    void summed(std::size_t count, const Sum& sum) {
        summed(count, sum, count);
    }
    template <class Sum>
    void summed(std::size_t count, const Sum& sum, std::size_t stride) {
        if (stride * rows_ <= elements_) {
            if (count == 0) { return; }
            sum.widen(stream_, staging_, 0, count);
            sum.add(stream_, staging_, 0, count);
            sum.narrow(stream_, staging_, 0, count);
        } else {
            sum_in_two_streams(count, sum);
        }
    }

  private:
    struct Piece {
        std::size_t at;
        std::size_t size;
        Event added;
    };

    template <class Sum>
    void sum_in_two_streams(std::size_t count, const Sum& sum) {
        const gpu::TimelineRef aside = call_.world.conversions();
        const std::size_t half = aligned(elements_ / 2);
        const std::size_t most = aligned(half / rows_);
        std::array<Piece, 2> pieces{};
        const auto narrow = [&](std::size_t number) {
            const Piece& piece = pieces[number % 2];
            aside.wait(piece.added);
            sum.narrow(aside, staging_ + number % 2 * half * size_, piece.at, piece.size);
        };
        // The addends are written, and the previous verb has finished with the staging memory.
        aside.wait(stream_.record());
        std::size_t number = 0;
        for (std::size_t at = 0; at < count; at += most, ++number) {
            if (number >= 2) { narrow(number - 2); }
            Piece& piece = pieces[number % 2];
            piece = {at, std::min(most, count - at), {}};
            std::byte* const staging = staging_ + number % 2 * half * size_;
            sum.widen(aside, staging, piece.at, piece.size);
            stream_.wait(aside.record());
            sum.add(stream_, staging, piece.at, piece.size);
            piece.added = stream_.record();
            keep_pace();
        }
        // A verb that needs more than half of the staging memory has at least two pieces.
        narrow(number - 2);
        narrow(number - 1);
        stream_.wait(aside.record());
    }

    /// Counts several pieces as a verb: a verb of many pieces makes many launches, and CUDA accepts about 1,000.
    void keep_pace() {
        constexpr std::size_t pieces_of_a_verb = 8;
        if (++given_ % pieces_of_a_verb == 0) { call_.world.keep_pace(stream_, call_.where); }
    }

    /// Rounds down, so that all pieces begin at addresses for wide loads of NCCL and of kernels.
    std::size_t aligned(std::size_t count) const noexcept {
        constexpr std::size_t bytes = 128;
        return count / (bytes / size_) * (bytes / size_);
    }

    const Call& call_;
    gpu::TimelineRef stream_;
    std::size_t rows_;
    std::size_t size_;
    std::byte* staging_;
    std::size_t elements_;
    std::size_t given_ = 0;
};

}  // namespace shardkit::nccl::detail
