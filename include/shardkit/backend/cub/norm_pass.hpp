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
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu {

/// What one vector of a gradient adds to the norm: the elements in `segments`, scaled and squared in Arithmetic<T>,
/// added in double; and how many of them are infinite or NaN.
template <FloatingElement T>
struct NormPass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;

    const T* gradient;
    const IndexRange* segments;
    std::size_t segment_count;
    const double* scale;
    Tiling<lanes> tiling;

    constexpr NormPartial operator()(std::uint64_t vector) const {
        NormPartial sum;
        for_each_pack_in(tiling, vector, segments, segment_count, Adding{gradient, {static_cast<A>(*scale)}, &sum});
        return sum;
    }

  private:
    struct Adding {
        const T* gradient;
        SquaredTerm<A> term;
        NormPartial* sum;

        template <std::size_t N>
        constexpr void at(std::uint64_t position, IndexRange /*segment*/) const {
            const auto pack = load<N>(gradient + position);
            for (std::size_t i = 0; i < N; ++i) {
                const A element = converted<A>(pack.lane[i]);
                sum->sum_of_squares += static_cast<double>(term(element));
                sum->nonfinite += element - element == 0 ? 0 : 1;  // infinity and NaN give NaN
            }
        }
    };
};

}  // namespace shardkit::gpu
