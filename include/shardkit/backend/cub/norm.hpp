// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu::detail {

/// The threads that hold a pack of 128 bytes: 8 of 16 bytes each.
inline constexpr unsigned pack_threads = 128 / widest_access;

/// What the threads of a warp add to the norm: elements of `pieces`, scaled and squared. Each thread loads vectors of
/// 16 bytes. Neighbouring threads hold packs of 128 bytes and add them as the host does: halves, element by element,
/// in Arithmetic<T>. If a sum overflows there, its pack is added again in double. `Warp` is the warp, and `Value` a
/// number of each of its threads (one, on a device): warp.exchange(distance, value) is the value of the thread whose
/// number differs in the bit `distance`, warp.choose(distance, a, b) is a in threads where this bit is 0 and b in the
/// others.
template <FloatingElement T>
struct NormPass {
    using A = Arithmetic<T>;
    static constexpr std::size_t lanes = lanes_for<T>;
    static constexpr std::size_t vectors = 4;

    const engine::NormPiece<T>* pieces;
    std::size_t piece_count;
    const double* scale;
    Tiling<lanes, vectors> tiling;
    std::uint64_t first_index;  ///< indices before it belong to other launches

    /// One vector of a thread, zeros where the pass has no elements.
    using Elements = AlignedPack<T, lanes>;
    /// All of a thread's vectors.
    struct Loaded {
        Elements vector[vectors];
    };

    /// Returns the number of indices of this pass, in full chunks.
    constexpr std::uint64_t indices() const noexcept { return tiling.indices() - first_index; }

    constexpr Loaded load(std::uint64_t index) const {
        const IndexRange chunk = tiling.chunk(first_index + index);
        const engine::NormPiece<T> piece = piece_at(chunk);
        const std::uint64_t begin = tiling.vector(first_index + index, 0).begin;
        Loaded loaded{};
        if (tiling.takes_packs_throughout(chunk) && holds(piece, chunk)) {
            const T* const elements = from_table(piece.elements) + (begin - piece.begin);
            for (std::size_t v = 0; v < vectors; ++v) {
                loaded.vector[v] = detail::load<lanes>(elements + v * warp * lanes);
            }
        } else {
            for (std::size_t v = 0; v < vectors; ++v) {
                loaded.vector[v] = elements_from(begin + v * warp * lanes, piece);
            }
        }
        return loaded;
    }
    /// Returns one of the vectors again.
    constexpr Elements load(std::uint64_t index, std::size_t vector) const {
        return elements_from(tiling.vector(first_index + index, 0).begin + vector * warp * lanes,
                             piece_at(tiling.chunk(first_index + index)));
    }

    /// Returns the square of a loaded element in Compute, A or double.
    template <class Compute>
    constexpr Compute square(T element) const {
        return shardkit::detail::SquaredTerm<Compute>{rules::Factor<Compute>(*scale)}(
            static_cast<Compute>(converted<A>(element)));
    }
    /// Returns whether the elements of a vector are finite, scaled too.
    constexpr bool finite(const Elements& elements) const {
        const rules::Factor<A> factor(*scale);
        bool all = true;
        for (const T each : elements.lane) {
            const A element = converted<A>(each);
            all = all && shardkit::detail::is_finite(element) && shardkit::detail::is_finite(factor * element);
        }
        return all;
    }

    /// The number of the vector with which a thread, with its neighbour, has a pack's sum.
    static constexpr std::size_t vector_of(unsigned thread) noexcept { return thread / 2 % vectors; }

    /// Returns the sum of the pack that lies in the vectors vector_of(thread), from the squares of all vectors.
    template <class Value, class Warp>
    static constexpr Value pack_sum(const Value (&squares)[vectors * lanes], const Warp& in) {
        Value two[2 * lanes]{};
        for (std::size_t i = 0; i < 2 * lanes; ++i) { two[i] = add_half(4, squares[i], squares[2 * lanes + i], in); }
        Value one[lanes]{};
        for (std::size_t i = 0; i < lanes; ++i) {
            one[i] = add_half(2, two[i], two[lanes + i], in);
            one[i] = one[i] + in.exchange(1, one[i]);
        }
        return halves(one);
    }
    /// Returns the same sum in all 8 threads, from the squares of one vector.
    template <class Value, class Warp>
    static constexpr Value pack_sum(const Value (&squares)[lanes], const Warp& in) {
        Value one[lanes]{};
        for (std::size_t i = 0; i < lanes; ++i) {
            one[i] = squares[i];
            for (unsigned distance = pack_threads / 2; distance > 0; distance /= 2) {
                one[i] = one[i] + in.exchange(distance, one[i]);
            }
        }
        return halves(one);
    }

  private:
    constexpr engine::NormPiece<T> piece_at(IndexRange chunk) const {
        const std::size_t at = first_ending_after(pieces, piece_count, chunk.begin);
        return at == piece_count ? engine::NormPiece<T>{} : pieces[at];
    }
    static constexpr Elements elements_from(std::uint64_t begin, const engine::NormPiece<T>& piece) {
        const T* const elements = from_table(piece.elements);
        Elements some{};
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::uint64_t position = begin + i;
            if (piece.begin <= position && position < piece.end) { some.lane[i] = elements[position - piece.begin]; }
        }
        return some;
    }

    template <class Value>
    static constexpr Value halves(Value (&values)[lanes]) {
        for (std::size_t half = lanes / 2; half > 0; half /= 2) {
            for (std::size_t i = 0; i < half; ++i) { values[i] = values[i] + values[half + i]; }
        }
        return values[0];
    }
    /// Of two values that threads `distance` apart have each: the sum of their first ones, and in the second thread
    /// that of their second ones.
    template <class Value, class Warp>
    static constexpr Value add_half(unsigned distance, const Value& first, const Value& second, const Warp& in) {
        return in.choose(distance, first, second) + in.exchange(distance, in.choose(distance, second, first));
    }
};

/// Adds a thread's sums of packs, and what does not fit its window with add(i, amount), to the numbers of a NormSum.
template <std::floating_point A, class Add>
class NormThread {
  public:
    constexpr explicit NormThread(const Add& add) : add_(add) {}

    /// @pre A holds the squares that `sum` is of
    constexpr void take(A sum) {
        if (taken_ < Window::most && window_.add(sum)) {
            ++taken_;
            return;
        }
        end();
        window_ = Window(sum);
        taken_ = 1;
        if (!window_.add(sum)) { take_apart(static_cast<double>(sum)); }
    }
    constexpr void take_apart(double sum) { ExactSum::split(sum, add_); }
    constexpr void end() { window_.split(add_); }

  private:
    using Window = shardkit::detail::ExactWindow<A>;
    Add add_;
    Window window_{A{1}};
    std::size_t taken_ = 0;
};

/// Makes the pass. norm_table places pieces so that packs of positions are packs of elements.
template <FloatingElement T>
NormPass<T> norm_pass(std::span<const engine::NormPiece<T>> pieces, IndexRange positions, const double* scale) {
    using Tiles = decltype(NormPass<T>::tiling);
    static_assert(Tiles::chunk_elements * sizeof(T) == engine::norm_chunk_bytes);
    return {pieces.data(),
            pieces.size(),
            scale,
            {positions.end, 0, true},
            positions.begin / Tiles::chunk_elements * warp};
}

/// Adds (*scale * element)^2 over `pieces`, and a number > 0 if any of these elements is infinite or NaN, to the
/// NormSum that travels in `into`. `pieces` are all or a part of norm_table's table, in the engine's memory.
/// `positions` go from the begin of the first piece to the end of the last one. Defined in norm.cuh, as is the call
/// operator of DeviceLaunch.
/// Order:  stream-ordered. Packs of 128 bytes begin where a piece does, or at the multiple of 16 bytes before, and
///         are added as by the host. Their sums are added exactly: every run gives the same bits, on any GPU.
/// Cost:   one pass and one launch, whatever the number of pieces.
/// @throws std::runtime_error that names both sizes, when the stream's scratch is too small
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into);

}  // namespace shardkit::gpu::detail
