// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/aligned_pack.hpp>
#include <shardkit/backend/cub/for_each_pack.hpp>
#include <shardkit/backend/cub/lanes_for.hpp>
#include <shardkit/backend/cub/tiling.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu {

/// One vector of a pass over elements: to[i] = value
template <Element T>
struct FillPass {
    static constexpr std::size_t lanes = lanes_for<T>;

    T* to;
    T value;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const { for_each_pack(tiling, vector, *this); }

    template <std::size_t N>
    constexpr void at(std::uint64_t position) const {
        AlignedPack<T, N> pack{};
        for (std::size_t i = 0; i < N; ++i) { pack.lane[i] = value; }
        store<N>(pack, to + position);
    }
};

}  // namespace shardkit::gpu
