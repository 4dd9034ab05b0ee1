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

/// One vector of a pass over elements: to[i] *= *factor, in Arithmetic<T>
template <FloatingElement T>
struct ScalePass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;

    T* to;
    const double* factor;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const { for_each_pack(tiling, vector, *this); }

    template <std::size_t N>
    constexpr void at(std::uint64_t position) const {
        const A by = static_cast<A>(*factor);
        auto pack = load<N>(to + position);
        for (std::size_t i = 0; i < N; ++i) { pack.lane[i] = converted<T>(by * converted<A>(pack.lane[i])); }
        store<N>(pack, to + position);
    }
};

}  // namespace shardkit::gpu
