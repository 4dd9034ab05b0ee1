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

/// One vector of a pass over elements: total[i] += addend[i], in Arithmetic<Sum>
template <FloatingElement Addend, FloatingElement Sum>
struct AccumulatePass {
    using A = Arithmetic<Sum>;
    static constexpr std::size_t lanes = lanes_for<Addend, Sum>;

    const Addend* addend;
    Sum* total;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const { for_each_pack(tiling, vector, *this); }

    template <std::size_t N>
    constexpr void at(std::uint64_t position) const {
        const auto more = load<N>(addend + position);
        auto sum = load<N>(total + position);
        for (std::size_t i = 0; i < N; ++i) {
            sum.lane[i] = converted<Sum>(converted<A>(sum.lane[i]) + converted<A>(more.lane[i]));
        }
        store<N>(sum, total + position);
    }
};

}  // namespace shardkit::gpu
