// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/lane_math.hpp>

namespace shardkit::gpu::detail {

/// Makes one step of an optimizer, by the pass `Update`, and begins the codes of all masters in the pass's spans, as
/// BeginCodes does. Each thread reads back the masters that it has just written, while the threads of a block find
/// the largest magnitude by shuffles. On the host the first thread does the work of all.
/// @pre the spans begin with a block
template <class Update, class Master, class Code>
struct CodedUpdatePass {
    using Format = shardkit::detail::CodeFormat<Code>;
    static constexpr std::size_t lanes = Update::lanes;
    static constexpr std::size_t vectors_in_turn = Update::vectors_in_turn;
    static constexpr unsigned least_blocks = 4;
    static constexpr std::uint64_t sharers = shardkit::detail::coded_together / lanes;
    static_assert(warp % sharers == 0);

    Update update;
    const Master* masters;
    Code* codes;
    float* scales;
    Tiling<lanes, vectors_in_turn> tiling;  ///< of masters that may be read, and codes that may be written, in packs

    /// @pre the sizes agree
    template <class Spans>
    static CodedUpdatePass of(Update update, const Spans& spans) {
        // An index has the elements of its shares of blocks, wherever the spans begin.
        update.tiling = from_start(update.tiling);
        return {update, spans.master.data(), spans.gathered.data(), spans.scales.data(),
                from_start(
                    tile<lanes, vectors_in_turn>(spans.master.size(), spans.master.data(), spans.gathered.data()))};
    }

    constexpr void operator()(std::uint64_t index) const {
#ifdef __CUDA_ARCH__
        update(index);
#pragma unroll 1
        for (std::size_t v = 0; v < vectors_in_turn; ++v) {
            const std::uint64_t position = tiling.vector(index, v).begin;
            const Share share = read(position);
            write(position, share, largest_of_threads<sharers>(largest_of(share)));
        }
#else
        if (index % sharers != 0) { return; }
        for (std::uint64_t t = 0; t < sharers; ++t) { update(index + t); }
        for (std::size_t v = 0; v < vectors_in_turn; ++v) {
            std::array<Share, sharers> shares{};
            float largest = 0;
            for (std::uint64_t t = 0; t < sharers; ++t) {
                shares[t] = read(tiling.vector(index + t, v).begin);
                largest = shardkit::detail::larger_magnitude(largest, largest_of(shares[t]));
            }
            for (std::uint64_t t = 0; t < sharers; ++t) {
                write(tiling.vector(index + t, v).begin, shares[t], largest);
            }
        }
#endif
    }

  private:
    /// A thread's masters of a block, with zeros behind the last one.
    using Share = std::array<float, lanes>;

    static constexpr bool begins_block(std::uint64_t position) {
        return position % shardkit::detail::coded_together == 0;
    }
    constexpr bool is_whole(std::uint64_t position) const {
        return tiling.aligned && position + lanes <= tiling.count;
    }
    constexpr Share read(std::uint64_t position) const {
        Share share{};
        if (is_whole(position)) {
            const auto pack = load<lanes>(masters + position);
            for (std::size_t i = 0; i < lanes; ++i) { share[i] = converted<float>(pack.lane[i]); }
            return share;
        }
        for (std::size_t i = 0; i < lanes; ++i) {
            if (position + i < tiling.count) { share[i] = converted<float>(in_memory(masters)[position + i]); }
        }
        return share;
    }
    static constexpr float largest_of(const Share& share) {
        return shardkit::detail::largest_magnitude(share.data(), lanes);
    }
    constexpr void write(std::uint64_t position, const Share& share, float largest) const {
        if (position >= tiling.count) { return; }
        if constexpr (Format::block == 0) {
            if (begins_block(position)) { std::memcpy(in_memory(codes) + position, &largest, sizeof largest); }
        } else {
            const float scale = Format::scale(largest);
            if (begins_block(position)) { in_memory(scales)[position / shardkit::detail::coded_together] = scale; }
            AlignedPack<Code, lanes> pack{};
            for (std::size_t i = 0; i < lanes; ++i) { pack.lane[i] = Format::encode(share[i], scale); }
            if (is_whole(position)) { return store<lanes>(pack, codes + position); }
            for (std::size_t i = 0; i < lanes && position + i < tiling.count; ++i) {
                in_memory(codes)[position + i] = pack.lane[i];
            }
        }
    }
};

}  // namespace shardkit::gpu::detail
