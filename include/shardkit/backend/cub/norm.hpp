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
#include <shardkit/optim/norm_table.hpp>

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

/// What one vector of positions adds to the norm: the elements of `pieces` that they stand for, scaled and squared in
/// Arithmetic<T>, added in double; and how many of them are infinite or NaN.
template <FloatingElement T>
struct NormPass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;

    const NormPiece<T>* pieces;
    std::size_t piece_count;
    const double* scale;
    std::uint64_t first;  ///< vector
    Tiling<lanes> tiling;

    constexpr shardkit::detail::NormPartial operator()(std::uint64_t vector) const {
        shardkit::detail::NormPartial sum;
        for_each_pack_in(tiling, first + vector, pieces, piece_count, Adding{{Factor<A>(*scale)}, &sum});
        return sum;
    }
    constexpr std::uint64_t vectors() const noexcept { return tiling.vectors() - first; }

  private:
    struct Adding {
        shardkit::detail::SquaredTerm<A> term;
        shardkit::detail::NormPartial* sum;

        template <std::size_t N>
        constexpr void at(std::uint64_t position, const NormPiece<T>& piece) const {
            const auto pack = load<N>(piece.elements + (position - piece.begin));
            for (std::size_t i = 0; i < N; ++i) {
                const A element = converted<A>(pack.lane[i]);
                sum->sum_of_squares += static_cast<double>(term(element));
                sum->nonfinite += element - element == 0 ? 0 : 1;  // infinity and NaN give NaN
            }
        }
    };
};

/// norm_table places pieces so that packs of positions are packs of elements.
template <FloatingElement T>
NormPass<T> norm_pass(std::span<const NormPiece<T>> pieces, IndexRange positions, const double* scale) noexcept {
    constexpr std::size_t lanes = NormPass<T>::lanes;
    return {pieces.data(), pieces.size(), scale, positions.begin / lanes, {positions.end, 0, true}};
}

/// Adds the sum of (*scale * element)^2 over `pieces` to into[0], and the number of elements there that are infinite
/// or NaN to into[1]. Defined in norm.cuh, as the call of DeviceLaunch. Order:  stream-ordered. Squares in
/// Arithmetic<T>, sums in double, in an order that depends on the GPU's model and
///         the pieces' positions alone: the same bits on every run.
/// Cost:   one pass; two launches, one where a few blocks suffice.
/// @pre    `pieces` are neighbours in norm_table's table, in the engine's memory; `positions`: from the first one's
/// begin
///         to the last one's end
/// @throws std::runtime_error when the stream's scratch is too small, which names both sizes
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into);

}  // namespace shardkit::gpu
