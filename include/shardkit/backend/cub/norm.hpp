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

/// Adds two partial norms; CUB's reduction operator.
struct AddNormPartials {
    constexpr shardkit::detail::NormPartial operator()(shardkit::detail::NormPartial a,
                                                       const shardkit::detail::NormPartial& b) const noexcept {
        return a += b;
    }
};

/// Says where the sum goes: added to the two doubles at `into`.
struct AddToNorm {
    double* into;

    constexpr void operator()(const shardkit::detail::NormPartial& sum) const noexcept {
        into[0] += sum.sum_of_squares;
        into[1] += sum.nonfinite;
    }
};

/// What a thread adds to the norm: of the elements of `pieces` those of its indices, scaled, squared and added in
/// Arithmetic<T> within vectors of 16 bytes (again in double where that does not hold the sum), and these in double;
/// and whether some are infinite or NaN, or are once they are scaled.
template <FloatingElement T>
struct NormPass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    const NormPiece<T>* pieces;
    std::size_t piece_count;
    const double* scale;
    Tiling<lanes, vectors> tiling;
    std::uint64_t first_index;  ///< of the tiling: those before are other launches'

    /// Returns the number of indices of this pass, whole chunks.
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

    /// Gives for_each_pack_in what it takes: `add` of what is read.
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

/// Makes the pass; norm_table places pieces so that packs of positions are packs of elements.
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

/// Adds the sum of (*scale * element)^2 over `pieces` of norm_table's table, which lies in the engine's memory, to
/// into[0], and to into[1] a number > 0 where elements there are infinite or NaN. Defined in norm.cuh, as the call of
/// DeviceLaunch. `positions`: from the begin of the first piece to the end of the last one; `pieces` may be a part of
/// the table.
/// Order:  stream-ordered. Squares, and their sums within 16 bytes, in Arithmetic<T>, sums of these in double, in an
///         order that depends on the GPU's model and the table alone: the same bits on every run.
/// Cost:   one pass and one launch, whatever the number of pieces.
/// @throws std::runtime_error when the stream's scratch is too small, which names both sizes
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into);

}  // namespace shardkit::gpu::detail
