// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/norm_partial.hpp>
#include <shardkit/sharded/norm_table.hpp>

namespace shardkit::gpu::detail {

/// Adds two partial norms; the reduction operator for CUB.
struct AddNormPartials {
    constexpr shardkit::detail::NormPartial operator()(shardkit::detail::NormPartial a,
                                                       const shardkit::detail::NormPartial& b) const noexcept {
        return a += b;
    }
};

/// Adds the sum to the two doubles at `into`.
struct AddToNorm {
    double* into;

    constexpr void operator()(const shardkit::detail::NormPartial& sum) const noexcept {
        into[0] += sum.sum_of_squares;
        into[1] += sum.nonfinite;
    }
};

/// What a thread adds to the norm: the elements of `pieces` at its indices, scaled, squared and added. The additions
/// are made in Arithmetic<T> within vectors of 16 bytes (again in double if the sum overflows there), and in double
/// between them. Also counts elements that are infinite or NaN, before or after scaling.
template <FloatingElement T>
struct NormPass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    const NormPiece<T>* pieces;
    std::size_t piece_count;
    const double* scale;
    Tiling<lanes, vectors> tiling;
    std::uint64_t first_index;  ///< indices before it belong to other launches

    /// Returns the number of indices of this pass, in full chunks.
    constexpr std::uint64_t indices() const noexcept { return tiling.indices() - first_index; }

    /// Returns the sum over the indices `first`, `first` + `stride`, ... below indices().
    constexpr shardkit::detail::NormPartial operator()(std::uint64_t first, std::uint64_t stride) const {
        shardkit::detail::NormPartial sum;
        each(first, stride, AddSquares{{Factor<A>(*scale)}, *scale, &sum});
        return sum;
    }

  private:
    struct AddSquares {
        shardkit::detail::SquaredTerm<A> term;
        double scale;
        shardkit::detail::NormPartial* sum;

        template <std::size_t N>
        constexpr void operator()(const AlignedPack<T, N>& pack) const {
            A squares = 0;
            for (std::size_t i = 0; i < N; ++i) { squares += term(converted<A>(pack.lane[i])); }
            if (shardkit::detail::holds_squares(squares)) {
                sum->sum_of_squares += static_cast<double>(squares);
                return;
            }
            for (std::size_t i = 0; i < N; ++i) {
                const A element = converted<A>(pack.lane[i]);
                const double scaled = scale * static_cast<double>(element);
                sum->sum_of_squares += scaled * scaled;
                const bool finite =
                    shardkit::detail::is_finite(element) && shardkit::detail::is_finite(term.scale * element);
                sum->nonfinite += finite ? 0 : 1;
            }
        }
    };

    /// Adapts `add` to for_each_pack_in.
    template <class Add>
    struct Reading {
        Add add;

        template <class Take>
        constexpr void in(const NormPiece<T>& piece, const Take& take) const {
            take(Step{from_table(piece.elements), piece.begin, add});
        }
        struct Step {
            const T* elements;
            std::uint64_t begin;
            Add add;

            template <std::size_t N>
            constexpr AlignedPack<T, N> load(std::uint64_t position) const {
                return detail::load<N>(elements + (position - begin));
            }
            template <std::size_t N>
            constexpr void finish(std::uint64_t /*position*/, const AlignedPack<T, N>& pack) const {
                add(pack);
            }
        };
    };

    template <class Add>
    constexpr void each(std::uint64_t first, std::uint64_t stride, const Add& add) const {
        for (std::uint64_t index = first; index < indices(); index += stride) {
            for_each_pack_in(tiling, first_index + index, pieces, piece_count, Reading<Add>{add});
        }
    }
};

/// Makes the pass. norm_table places pieces so that packs of positions are packs of elements.
template <FloatingElement T>
NormPass<T> norm_pass(std::span<const NormPiece<T>> pieces, IndexRange positions, const double* scale) {
    using Tiles = decltype(NormPass<T>::tiling);
    static_assert(Tiles::chunk_elements * sizeof(T) == norm_chunk_bytes);
    return {pieces.data(),
            pieces.size(),
            scale,
            {positions.end, 0, true},
            positions.begin / Tiles::chunk_elements * Tiles::sharers};
}

/// Adds to into[0] the sum of (*scale * element)^2 over `pieces`, and to into[1] a number > 0 if any of these
/// elements is infinite or NaN. `pieces` are all or a part of norm_table's table, in the engine's memory. `positions`
/// go from the begin of the first piece to the end of the last one. Defined in norm.cuh, as is the call operator of
/// DeviceLaunch.
/// Order:  stream-ordered. Squares, and their sums within 16 bytes, are in Arithmetic<T>, sums of these in double.
///         The order of additions depends only on the GPU model and the table: every run gives the same bits.
/// Cost:   one pass and one launch, whatever the number of pieces.
/// @throws std::runtime_error that names both sizes, when the stream's scratch is too small
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into);

}  // namespace shardkit::gpu::detail
