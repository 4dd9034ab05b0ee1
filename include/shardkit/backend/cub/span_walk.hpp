// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <shardkit/core/aligned_pack.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu::detail {

/// Checks that the spans of a kernel have equal sizes.
/// @throws std::invalid_argument that names kernel and span, unless given == expected
inline void require_size(std::string_view kernel, std::string_view span, std::size_t given, std::size_t expected,
                         SourceLocation where) {
    if (given != expected) {
        throw_invalid_argument(where, "gpu::Kernels::", kernel, ": ", span, " has ", given, " elements, expected ",
                               expected);
    }
}

using shardkit::detail::AlignedPack;
using shardkit::detail::elements_past_pack;
using shardkit::detail::from_table;
using shardkit::detail::lanes_for;
using shardkit::detail::load;
using shardkit::detail::store;
using shardkit::detail::widest_access;

/// Returns `element` as a To, rounded to nearest, ties to even; between fp64 and a 16-bit type through fp32.
template <class To, class From>
constexpr To converted(From element) noexcept {
    return static_cast<To>(static_cast<Arithmetic<To>>(static_cast<Arithmetic<From>>(element)));
}

/// Converts each lane like `converted`.
template <class To, class From, std::size_t Lanes>
constexpr AlignedPack<To, Lanes> converted_pack(const AlignedPack<From, Lanes>& from) noexcept {
    AlignedPack<To, Lanes> to{};
    for (std::size_t i = 0; i < Lanes; ++i) { to.lane[i] = converted<To>(from.lane[i]); }
    return to;
}

/// The number of threads that run in step, on adjacent indices: a warp.
inline constexpr std::uint64_t warp = 32;

/// How a pass over `count` elements is divided into vectors of `Lanes`. Vector v holds the positions [v * Lanes -
/// shift, (v + 1) * Lanes - shift) within [0, count): the first and the last one may be shorter. `aligned` says that
/// in every span of the pass, full vectors are at addresses for an AlignedPack.
/// An index processes `Vectors` vectors. With more than one, a warp processes a chunk of `warp * Vectors` vectors;
/// index i is thread i % warp of chunk i / warp and takes every warp-th vector, so that a warp's accesses are
/// adjacent. With one vector, an index is a chunk of its own.
template <std::size_t Lanes, std::size_t Vectors = 1>
struct Tiling {
    static constexpr std::uint64_t sharers = Vectors > 1 ? warp : 1;  ///< number of indices of a chunk
    static constexpr std::uint64_t chunk_elements = sharers * Vectors * Lanes;

    std::uint64_t count;
    std::uint32_t shift;
    bool aligned;

    /// Returns the number of indices of the pass, in full chunks.
    constexpr std::uint64_t indices() const noexcept {
        return (count + shift + chunk_elements - 1) / chunk_elements * sharers;
    }
    /// Returns the positions of the `v`-th vector of an index.
    constexpr IndexRange vector(std::uint64_t index, std::uint64_t v) const noexcept {
        return positions(index / sharers * chunk_elements + (index % sharers + v * sharers) * Lanes, Lanes);
    }
    /// Returns the positions of the chunk of an index.
    constexpr IndexRange chunk(std::uint64_t index) const noexcept {
        return positions(index / sharers * chunk_elements, chunk_elements);
    }
    /// Return whether a vector, or a whole chunk, is processed in packs.
    constexpr bool takes_packs(IndexRange vector) const noexcept { return aligned && vector.size() == Lanes; }
    constexpr bool takes_packs_throughout(IndexRange chunk) const noexcept {
        return aligned && chunk.size() == chunk_elements;
    }

  private:
    /// Returns `elements` positions, from place `place` behind the start of vector 0 on, within [0, count).
    constexpr IndexRange positions(std::uint64_t place, std::uint64_t elements) const noexcept {
        const std::uint64_t end = place + elements - shift;  // a vector is longer than the shift
        return {place < shift ? 0 : place - shift, end < count ? end : count};
    }
};

/// Returns the tiling of `count` elements of spans that begin at `starts`; null stands for a span that the pass does
/// not use. The tiling is not `aligned` if the starts have different offsets within a pack.
template <std::size_t Lanes, std::size_t Vectors = 1, class First, class... T>
constexpr Tiling<Lanes, Vectors> tile(std::uint64_t count, const First* first, const T*... starts) noexcept {
    const std::uint32_t shift = elements_past_pack<Lanes>(first);
    [[maybe_unused]] const auto agrees = [&](const auto* at) {
        return at == nullptr || elements_past_pack<Lanes>(at) == shift;
    };
    const bool aligned = (agrees(starts) && ...);
    return {count, aligned ? shift : 0, aligned};
}

/// Returns the first of `count` sorted, disjoint ranges that ends after `position`; `count` when none does.
/// Cost:  ceil(log2(count + 1)) reads, the same for the threads of a warp where ranges are long.
template <class Range, class Count>
constexpr Count first_ending_after(const Range* ranges, Count count, std::uint64_t position) {
    Count low = 0;
    Count high = count;
    while (low < high) {
        const Count middle = low + (high - low) / 2;
        if (ranges[middle].end <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

template <class Range>
constexpr bool holds(const Range& range, IndexRange positions) {
    return range.begin <= positions.begin && positions.end <= range.end;
}

/// Processes all, full vectors of an index with a step. It loads everything before it stores anything, as the
/// compiler cannot know that the stores do not overwrite it.
template <std::size_t Lanes, std::size_t Vectors>
struct TakePacks {
    std::uint64_t position;  ///< first position of the first vector

    template <class Step>
    constexpr void operator()(const Step& step) const {
        take(step, std::make_index_sequence<Vectors>{});
    }

  private:
    template <class Step, std::size_t... V>
    constexpr void take(const Step& step, std::index_sequence<V...>) const {
        const decltype(step.template load<Lanes>(position)) loaded[] = {
            step.template load<Lanes>(position + V * warp * Lanes)...};
        (step.template finish<Lanes>(position + V * warp * Lanes, loaded[V]), ...);
    }
};

/// Processes the parts of an index's vectors that are in `range`, in an incomplete chunk: vectors that are completely
/// in the range as packs, others element by element.
template <std::size_t Lanes, std::size_t Vectors>
struct TakeParts {
    const Tiling<Lanes, Vectors>& tiling;
    std::uint64_t index;
    IndexRange range;

    template <class Step>
    constexpr void operator()(const Step& step) const {
        if constexpr (Vectors > 1) { take_whole(step); }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
        for (std::size_t v = 0; v < Vectors; ++v) {
            const IndexRange vector = tiling.vector(index, v);
            if (Vectors > 1 && is_whole(vector)) { continue; }
            const std::uint64_t end = vector.end < range.end ? vector.end : range.end;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
            for (std::uint64_t at = vector.begin > range.begin ? vector.begin : range.begin; at < end; ++at) {
                step.template finish<1>(at, step.template load<1>(at));
            }
        }
    }

  private:
    constexpr bool is_whole(IndexRange vector) const { return tiling.takes_packs(vector) && holds(range, vector); }

    template <class Step>
    constexpr void take_whole(const Step& step) const {
        decltype(step.template load<Lanes>(0)) loaded[Vectors] = {};
        for (std::size_t v = 0; v < Vectors; ++v) {
            const IndexRange vector = tiling.vector(index, v);
            if (is_whole(vector)) { loaded[v] = step.template load<Lanes>(vector.begin); }
        }
        for (std::size_t v = 0; v < Vectors; ++v) {
            const IndexRange vector = tiling.vector(index, v);
            if (is_whole(vector)) { step.template finish<Lanes>(vector.begin, loaded[v]); }
        }
    }
};

/// Runs an index's share of a pass with a step, which has
///     step.template load<N>(position)              loads the inputs of the elements [position, position + N)
///     step.template finish<N>(position, loaded)    computes and stores them
/// with N = Lanes where vectors are full and aligned, and element by element elsewhere.
template <std::size_t Lanes, std::size_t Vectors, class Step>
constexpr void for_each_pack(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index, const Step& step) {
    const IndexRange chunk = tiling.chunk(index);
    if (tiling.takes_packs_throughout(chunk)) {
        TakePacks<Lanes, Vectors>{tiling.vector(index, 0).begin}(step);
    } else {
        TakeParts<Lanes, Vectors>{tiling, index, chunk}(step);
    }
}

/// Runs an index's share for the positions in one of `count` sorted, disjoint ranges: pass.in(range, take) must call
/// take(step) with the step for a range. The range is searched once for each chunk.
template <std::size_t Lanes, std::size_t Vectors, class Range, class Pass>
constexpr void for_each_pack_in(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index, const Range* ranges,
                                std::size_t count, const Pass& pass) {
    const IndexRange chunk = tiling.chunk(index);
    std::size_t at = first_ending_after(ranges, count, chunk.begin);
    if (at == count) { return; }
    const Range range = ranges[at];
    if (tiling.takes_packs_throughout(chunk) && holds(range, chunk)) {
        pass.in(range, TakePacks<Lanes, Vectors>{tiling.vector(index, 0).begin});
        return;
    }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (; at < count && ranges[at].begin < chunk.end; ++at) {
        pass.in(ranges[at], TakeParts<Lanes, Vectors>{tiling, index, {ranges[at].begin, ranges[at].end}});
    }
}

}  // namespace shardkit::gpu::detail
