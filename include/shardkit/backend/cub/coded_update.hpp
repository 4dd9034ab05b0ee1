// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/block_int8.hpp>
#include <shardkit/core/codes.hpp>

namespace shardkit::gpu::detail {

/// Makes one step of an optimizer, by the pass `Update`, and begins the codes of all masters in the pass's spans, as
/// BeginCodes does. Each thread reads back the masters that it has just written, while the threads of a block find
/// the largest magnitude by shuffles. On the host the first thread does the work of all.
/// @pre the spans begin with a block
template <class Update, class Master, class Code>
struct CodedUpdatePass {
    using Format = shardkit::detail::CodeFormat<Code>;
    static constexpr std::size_t lanes = Update::lanes;
    static constexpr std::uint64_t sharers = shardkit::detail::coded_together / lanes;
    static_assert(warp % sharers == 0);

    /// How masters are divided among indices: `sharers` adjacent ones share a block.
    struct BlockTiling {
        std::uint64_t count;
        bool aligned;  ///< masters may be read, and codes written, in packs

        /// Returns the number of indices, a multiple of the warp size, so that all sharers of a block run.
        constexpr std::uint64_t indices() const noexcept {
            return ((count + lanes - 1) / lanes + warp - 1) / warp * warp;
        }
    };

    Update update;
    const Master* masters;
    Code* codes;
    float* scales;
    BlockTiling tiling;

    /// @pre the sizes agree
    template <class Spans>
    static CodedUpdatePass of(Update update, const Spans& spans) {
        if constexpr (requires { update.tiling.shift; }) {
            // An index has the elements of its share of a block, wherever the spans begin.
            if (update.tiling.shift != 0) { update.tiling = {update.tiling.count, 0, false}; }
        }
        return {update,
                spans.master.data(),
                spans.gathered.data(),
                spans.scales.data(),
                {spans.master.size(), elements_past_pack<lanes>(spans.master.data()) == 0 &&
                                          elements_past_pack<lanes>(spans.gathered.data()) == 0}};
    }

    constexpr void operator()(std::uint64_t index) const {
#ifdef __CUDA_ARCH__
        if (index < update.tiling.indices()) { update(index); }
        const Share share = read(index);
        write(index, share, largest_of_block(largest_of(share)));
#else
        if (index % sharers != 0) { return; }
        std::array<Share, sharers> shares{};
        float largest = 0;
        for (std::uint64_t t = 0; t < sharers; ++t) {
            if (index + t < update.tiling.indices()) { update(index + t); }
        }
        for (std::uint64_t t = 0; t < sharers; ++t) {
            shares[t] = read(index + t);
            largest = BlockInt8<>::larger(largest, largest_of(shares[t]));
        }
        for (std::uint64_t t = 0; t < sharers; ++t) { write(index + t, shares[t], largest); }
#endif
    }

  private:
    /// A thread's masters of a block, with zeros behind the last one.
    using Share = std::array<float, lanes>;

    constexpr bool is_whole(std::uint64_t position) const {
        return tiling.aligned && position + lanes <= tiling.count;
    }
    constexpr Share read(std::uint64_t index) const {
        Share share{};
        const std::uint64_t position = index * lanes;
        if (is_whole(position)) {
            const auto pack = load<lanes>(masters + position);
            for (std::size_t i = 0; i < lanes; ++i) { share[i] = converted<float>(pack.lane[i]); }
            return share;
        }
        for (std::size_t i = 0; i < lanes; ++i) {
            if (position + i < tiling.count) { share[i] = converted<float>(masters[position + i]); }
        }
        return share;
    }
    static constexpr float largest_of(const Share& share) {
        float largest = 0;
        for (const float master : share) { largest = BlockInt8<>::larger(largest, master); }
        return largest;
    }
    constexpr void write(std::uint64_t index, const Share& share, float largest) const {
        const std::uint64_t position = index * lanes;
        if (position >= tiling.count) { return; }
        if constexpr (Format::block == 0) {
            if (index % sharers == 0) { std::memcpy(codes + position, &largest, sizeof largest); }
        } else {
            const float scale = Format::scale(largest);
            if (index % sharers == 0) { scales[index / sharers] = scale; }
            AlignedPack<Code, lanes> pack{};
            for (std::size_t i = 0; i < lanes; ++i) { pack.lane[i] = Format::encode(share[i], scale); }
            if (is_whole(position)) { return store<lanes>(pack, codes + position); }
            for (std::size_t i = 0; i < lanes && position + i < tiling.count; ++i) {
                codes[position + i] = pack.lane[i];
            }
        }
    }
#ifdef __CUDA_ARCH__
    static __device__ float largest_of_block(float largest) {
        for (unsigned distance = sharers / 2; distance > 0; distance /= 2) {
            largest = BlockInt8<>::larger(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
        }
        return largest;
    }
#endif
};

}  // namespace shardkit::gpu::detail
