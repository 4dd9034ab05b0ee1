// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/aligned_pack.hpp>
#include <shardkit/backend/cub/converted.hpp>
#include <shardkit/backend/cub/lanes_for.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/quantize/block_int8.hpp>

namespace shardkit::gpu {

/// One block of a quantisation to BlockInt8<Block>: its scale, then its codes. A thread reads the block twice, the
/// second time from a cache. `aligned`: packs may be used, counted from the starts of the spans.
template <FloatingElement T, std::size_t Block>
struct QuantizePass {
    using Format = BlockInt8<Block>;
    static constexpr std::size_t lanes = lanes_for<T, std::int8_t>;
    static_assert(Block % lanes == 0);

    const T* from;
    std::int8_t* codes;
    float* scales;
    std::uint64_t count;
    bool aligned;

    constexpr void operator()(std::uint64_t block) const {
        const std::uint64_t begin = block * Block;
        if (aligned && count - begin >= Block) {
            encode<lanes>(block, begin, begin + Block);
        } else {
            encode<1>(block, begin, count - begin < Block ? count : begin + Block);
        }
    }

  private:
    template <std::size_t N>
    constexpr void encode(std::uint64_t block, std::uint64_t begin, std::uint64_t end) const {
        float largest = 0;
        for (std::uint64_t at = begin; at < end; at += N) {
            const auto pack = load<N>(from + at);
            for (std::size_t i = 0; i < N; ++i) { largest = Format::larger(largest, converted<float>(pack.lane[i])); }
        }
        const float scale = Format::scale(largest);
        scales[block] = scale;
        for (std::uint64_t at = begin; at < end; at += N) {
            const auto pack = load<N>(from + at);
            AlignedPack<std::int8_t, N> coded{};
            for (std::size_t i = 0; i < N; ++i) {
                coded.lane[i] = Format::encode(converted<float>(pack.lane[i]), scale);
            }
            store<N>(coded, codes + at);
        }
    }
};

}  // namespace shardkit::gpu
