// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
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

/// One vector of what BlockInt8<Block> codes stand for.
template <FloatingElement T, std::size_t Block>
struct DequantizePass {
    static constexpr std::size_t lanes = lanes_for<T, std::int8_t>;

    const std::int8_t* codes;
    const float* scales;
    T* to;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const { for_each_pack(tiling, vector, *this); }

    template <std::size_t N>
    constexpr void at(std::uint64_t position) const {
        const auto coded = load<N>(codes + position);
        AlignedPack<T, N> pack{};
        for (std::size_t i = 0; i < N; ++i) {
            pack.lane[i] = converted<T>(BlockInt8<Block>::decode(coded.lane[i], scales[(position + i) / Block]));
        }
        store<N>(pack, to + position);
    }
};

}  // namespace shardkit::gpu

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// As the host's shardkit::quantize, in one launch, with the same bits.
template <std::size_t Block, FloatingElement T, class Launch>
void quantize(const Launch& launch, std::span<const T> from, std::span<std::int8_t> codes, std::span<float> scales,
              SourceLocation where = SourceLocation::current()) {
    using Pass = QuantizePass<T, Block>;
    require_size("quantize", "codes", codes.size(), from.size(), where);
    require_size("quantize", "scales", scales.size(), BlockInt8<Block>::blocks(from.size()), where);
    const auto tiling = tile<Pass::lanes>(from.size(), from.data(), codes.data());
    launch(scales.size(),
           Pass{from.data(), codes.data(), scales.data(), from.size(), tiling.aligned && tiling.shift == 0},
           "quantize");
}

/// As the host's shardkit::dequantize, likewise.
template <std::size_t Block, FloatingElement T, class Launch>
void dequantize(const Launch& launch, std::span<const std::int8_t> codes, std::span<const float> scales,
                std::span<T> to, SourceLocation where = SourceLocation::current()) {
    using Pass = DequantizePass<T, Block>;
    require_size("dequantize", "to", to.size(), codes.size(), where);
    require_size("dequantize", "scales", scales.size(), BlockInt8<Block>::blocks(codes.size()), where);
    const Pass pass{codes.data(), scales.data(), to.data(), tile<Pass::lanes>(to.size(), codes.data(), to.data())};
    launch(pass.tiling.vectors(), pass, "dequantize");
}

}  // namespace shardkit::gpu
