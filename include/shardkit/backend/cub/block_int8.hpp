// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/block_int8.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu::detail {

/// Quantises to BlockInt8<Block>. `group` adjacent threads share a block: each keeps its elements in registers while
/// the group finds their largest magnitude by shuffles, and then writes their codes. On the host the first thread
/// does the work of all. `aligned` says that packs may be used, counted from the starts of the spans.
template <FloatingElement T, std::size_t Block>
struct QuantizePass {
    using Format = BlockInt8<Block>;
    static constexpr std::size_t lanes = lanes_for<T, std::int8_t>;
    static_assert(Block % lanes == 0);
    static constexpr std::size_t group = std::gcd(Block / lanes, warp);
    static constexpr std::size_t vectors = Block / lanes / group;       ///< vectors of a thread in a block
    static constexpr std::size_t rows = vectors < 4 ? 4 / vectors : 1;  ///< blocks of a thread that are read together
    static constexpr unsigned least_blocks = 5;

    const T* from;
    std::int8_t* codes;
    float* scales;
    std::uint64_t count;
    bool aligned;

    /// Returns the number of indices of the pass. It is a multiple of the warp size, so that all threads of a group
    /// run.
    constexpr std::uint64_t indices() const noexcept {
        constexpr std::uint64_t chunk = warp / group * rows;
        return (Format::blocks(count) + chunk - 1) / chunk * warp;
    }
    constexpr void operator()(std::uint64_t index) const {
        const std::uint64_t block = index / warp * (warp / group * rows) + index % warp / group;
        [[maybe_unused]] const std::uint64_t thread = index % group;
#ifdef __CUDA_ARCH__
        Share share[rows];
        for (std::size_t r = 0; r < rows; ++r) { share[r] = read(block + r * (warp / group), thread); }
        for (std::size_t r = 0; r < rows; ++r) {
            const float scale = Format::scale(largest_of_group(largest(share[r])));
            write(block + r * (warp / group), thread, share[r], scale);
        }
#else
        if (thread != 0) { return; }
        for (std::size_t r = 0; r < rows; ++r) {
            const std::uint64_t of_row = block + r * (warp / group);
            float most = 0;
            for (std::size_t t = 0; t < group; ++t) { most = Format::larger(most, largest(read(of_row, t))); }
            for (std::size_t t = 0; t < group; ++t) { write(of_row, t, read(of_row, t), Format::scale(most)); }
        }
#endif
    }

  private:
    /// A thread's elements of a block, zero where the block is shorter.
    struct Share {
        AlignedPack<T, lanes> pack[vectors];
    };

    constexpr std::uint64_t position(std::uint64_t block, std::uint64_t thread, std::size_t vector) const {
        return block * Block + (vector * group + thread) * lanes;
    }
    constexpr bool is_whole(std::uint64_t position) const { return aligned && position + lanes <= count; }

    constexpr Share read(std::uint64_t block, std::uint64_t thread) const {
        Share share{};
        for (std::size_t v = 0; v < vectors; ++v) {
            const std::uint64_t begin = position(block, thread, v);
            if (is_whole(begin)) {
                share.pack[v] = load<lanes>(from + begin);
            } else {
                for (std::size_t i = 0; i < lanes && begin + i < count; ++i) {
                    share.pack[v].lane[i] = from[begin + i];
                }
            }
        }
        return share;
    }
    static constexpr float largest(const Share& share) {
        float most = 0;
        for (const auto& pack : share.pack) {
            for (const T element : pack.lane) { most = Format::larger(most, converted<float>(element)); }
        }
        return most;
    }
    constexpr void write(std::uint64_t block, std::uint64_t thread, const Share& share, float scale) const {
        if (thread == 0 && block * Block < count) { scales[block] = scale; }
        for (std::size_t v = 0; v < vectors; ++v) {
            const std::uint64_t begin = position(block, thread, v);
            AlignedPack<std::int8_t, lanes> coded{};
            for (std::size_t i = 0; i < lanes; ++i) {
                coded.lane[i] = Format::encode(converted<float>(share.pack[v].lane[i]), scale);
            }
            if (is_whole(begin)) {
                store<lanes>(coded, codes + begin);
            } else {
                for (std::size_t i = 0; i < lanes && begin + i < count; ++i) { codes[begin + i] = coded.lane[i]; }
            }
        }
    }
#ifdef __CUDA_ARCH__
    static __device__ float largest_of_group(float most) {
        for (unsigned distance = group / 2; distance > 0; distance /= 2) {
            most = Format::larger(most, __shfl_xor_sync(0xffffffffU, most, distance));
        }
        return most;
    }
#endif
};

/// Decodes BlockInt8<Block>.
template <FloatingElement T, std::size_t Block>
struct DequantizePass {
    static constexpr std::size_t lanes = lanes_for<T, std::int8_t>;
    static constexpr std::size_t vectors = 4;

    const std::int8_t* codes;
    const float* scales;
    T* to;
    Tiling<lanes, vectors> tiling;  ///< packs are counted from the starts of the spans: one scale for each

    constexpr void operator()(std::uint64_t index) const { for_each_pack(tiling, index, *this); }

    template <std::size_t N>
    struct Loaded {
        AlignedPack<std::int8_t, N> coded;
        float scale;
    };
    template <std::size_t N>
    constexpr Loaded<N> load(std::uint64_t position) const {
        return {detail::load<N>(codes + position), scales[position / Block]};
    }
    template <std::size_t N>
    constexpr void finish(std::uint64_t position, const Loaded<N>& of) const {
        AlignedPack<T, N> pack{};
        for (std::size_t i = 0; i < N; ++i) {
            pack.lane[i] = converted<T>(BlockInt8<Block>::decode(of.coded.lane[i], of.scale));
        }
        store<N>(pack, to + position);
    }
};

}  // namespace shardkit::gpu::detail
