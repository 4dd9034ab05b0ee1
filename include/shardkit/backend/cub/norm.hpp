// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu {

/// The sum of two; CUB's reduction operator.
struct AddNormPartials {
    constexpr shardkit::detail::NormPartial operator()(shardkit::detail::NormPartial a,
                                                       const shardkit::detail::NormPartial& b) const noexcept {
        return a += b;
    }
};

/// Where CUB's reduction writes its result: added to the two doubles at `into`.
struct AddToNorm {
    double* into;

    template <class Index>
    constexpr void operator()(Index /*always 0*/, const shardkit::detail::NormPartial& sum) const noexcept {
        into[0] += sum.sum_of_squares;
        into[1] += sum.nonfinite;
    }
};

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

    constexpr shardkit::detail::NormPartial operator()(std::uint64_t vector) const {
        shardkit::detail::NormPartial sum;
        for_each_pack_in(tiling, vector, segments, segment_count, Adding{gradient, {Factor<A>(*scale)}, &sum});
        return sum;
    }

  private:
    struct Adding {
        const T* gradient;
        shardkit::detail::SquaredTerm<A> term;
        shardkit::detail::NormPartial* sum;

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

/// Adds the sum of (*scale * gradient[i])^2 over `segments` to into[0], and the number of elements there that are
/// infinite or NaN to into[1]. Defined in norm.cuh, as the call of DeviceLaunch.
/// Order:  stream-ordered. Squares in Arithmetic<T>, sums in double, in an order that depends on the GPU's model, the
///         size of the span and its alignment alone: the same bits on every run.
/// Cost:   one pass; two launches, one where a few blocks suffice.
/// @pre    segments are sorted, disjoint and inside `gradient`
/// @throws std::runtime_error when the stream's scratch is too small, which names both sizes
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const T> gradient, std::span<const IndexRange> segments,
                  const double* scale, double* into);

}  // namespace shardkit::gpu
