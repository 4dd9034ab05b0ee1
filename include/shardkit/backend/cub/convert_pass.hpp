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

namespace shardkit::gpu {

/// One vector of a pass over elements: to[i] = from[i], rounded
template <FloatingElement From, FloatingElement To>
struct ConvertPass {
    static constexpr std::size_t lanes = lanes_for<From, To>;

    const From* from;
    To* to;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const { for_each_pack(tiling, vector, *this); }

    template <std::size_t N>
    constexpr void at(std::uint64_t position) const {
        store<N>(converted_pack<To>(load<N>(from + position)), to + position);
    }
};

}  // namespace shardkit::gpu
