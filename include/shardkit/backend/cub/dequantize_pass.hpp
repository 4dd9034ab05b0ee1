// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/aligned_pack.hpp>
#include <shardkit/backend/cub/converted.hpp>
#include <shardkit/backend/cub/for_each_pack.hpp>
#include <shardkit/backend/cub/lanes_for.hpp>
#include <shardkit/backend/cub/tiling.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/quantize/block_int8.hpp>

namespace shardkit::gpu {

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
