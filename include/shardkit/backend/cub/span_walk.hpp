// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <shardkit/core/aligned_pack.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu::detail {

using shardkit::detail::AlignedPack;
using shardkit::detail::elements_past_pack;
using shardkit::detail::from_table;
using shardkit::detail::in_memory;
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
/// A warp processes a chunk of `warp * Vectors` vectors: index i is thread i % warp of chunk i / warp and takes every
/// warp-th vector, so that a warp's accesses are adjacent.
template <std::size_t Lanes, std::size_t Vectors = 1>
struct Tiling {
    static constexpr std::uint64_t chunk_elements = warp * Vectors * Lanes;

    std::uint64_t count;
    std::uint32_t shift;
    bool aligned;

    /// Returns the number of indices of the pass, in full chunks.
    constexpr std::uint64_t indices() const noexcept {
        return (count + shift + chunk_elements - 1) / chunk_elements * warp;
    }
    /// Returns the positions of the `v`-th vector of an index.
    constexpr IndexRange vector(std::uint64_t index, std::uint64_t v) const noexcept {
        return positions(first_place(index) + v * warp * Lanes, Lanes);
    }
    /// Return where an index's first vector begins, counted from the start of vector 0; the positions of the vector
    /// at `place`, which moves on to the next one; and whether that one is the index's too. So a loop over vectors
    /// needs the registers of a place alone.
    static constexpr std::uint64_t first_place(std::uint64_t index) noexcept {
        return index / warp * chunk_elements + index % warp * Lanes;
    }
    constexpr IndexRange next_vector(std::uint64_t& place) const noexcept {
        place += warp * Lanes;
        return positions(place - warp * Lanes, Lanes);
    }
    static constexpr bool has_next(std::uint64_t place) noexcept { return place % chunk_elements >= warp * Lanes; }
    /// Returns the positions of the chunk of an index.
    constexpr IndexRange chunk(std::uint64_t index) const noexcept {
        return positions(index / warp * chunk_elements, chunk_elements);
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

/// Returns a tiling whose packs begin where the spans do, or one without packs.
template <class Tiles>
Tiles from_start(Tiles tiling) noexcept {
    return {tiling.count, 0, tiling.aligned && tiling.shift == 0};
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

#ifdef __CUDA_ARCH__
/// Returns the largest magnitude of the numbers that `Sharers` adjacent threads have, to all of them.
template <unsigned Sharers>
__device__ float largest_of_threads(float largest) {
    for (unsigned distance = Sharers / 2; distance > 0; distance /= 2) {
        largest = shardkit::detail::larger_magnitude(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
    }
    return largest;
}
#endif

/// Returns `position`, from which a kernel then computes the addresses of its stores anew: it keeps no registers for
/// those of its loads.
constexpr std::uint64_t anew(std::uint64_t position) noexcept {
#ifdef __CUDA_ARCH__
    asm("" : "+l"(position));
#endif
    return position;
}

template <class Range>
constexpr bool holds(const Range& range, IndexRange positions) {
    return range.begin <= positions.begin && positions.end <= range.end;
}

/// Calls visit(range) for each of `count` sorted, disjoint ranges that has positions in `chunk`, after one search.
template <class Range, class Visit>
constexpr void for_each_range_in(IndexRange chunk, const Range* ranges, std::size_t count, const Visit& visit) {
    SHARDKIT_UNROLL(1)
    for (std::size_t at = first_ending_after(ranges, count, chunk.begin); at < count; ++at) {
        const Range range = ranges[at];
        if (range.begin >= chunk.end) { return; }
        visit(range);
        if (range.end >= chunk.end) { return; }  // without a look at the next one
    }
}

/// Sorted, disjoint ranges that a kernel searches.
template <class Range>
struct RangeTable {
    const Range* ranges;
    std::uint32_t count;  ///< in 32 bits, so that the search leaves the work its registers

    constexpr const Range& operator[](std::uint32_t at) const { return in_memory(ranges)[at]; }
    constexpr std::uint32_t first_after(std::uint64_t position) const {
        return first_ending_after(in_memory(ranges), count, position);
    }
    /// Moves `at` on to the first range that ends after `position`, and reads it. Returns false when none does.
    constexpr bool read_next(std::uint64_t position, std::uint32_t& at, Range& range) const {
        for (; at < count; ++at) {
            range = (*this)[at];
            if (range.end > position) { return true; }
        }
        return false;
    }
};

/// Processes the elements of a vector that are in `range` one by one.
template <class Range, class Step>
constexpr void take_elements(IndexRange vector, const Range& range, const Step& step) {
    const std::uint64_t end = vector.end < range.end ? vector.end : range.end;
    SHARDKIT_UNROLL(1)
    for (std::uint64_t at = vector.begin > range.begin ? vector.begin : range.begin; at < end; ++at) {
        step.template finish<1>(at, step.template load<1>(at));
    }
}

/// Runs an index's share of a pass, as far as it is in `range`, with a step, which has
///     step.template load<N>(position)              loads the inputs of the elements [position, position + N)
///     step.template finish<N>(position, loaded)    computes and stores them
/// with N = Lanes where vectors are full, aligned and in the range, and element by element elsewhere. It loads all
/// full vectors before it stores anything, as the compiler cannot know that the stores do not overwrite what is
/// loaded.
template <std::size_t Lanes, std::size_t Vectors, class Step>
constexpr void for_each_pack(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index, IndexRange range,
                             const Step& step) {
    const IndexRange chunk = tiling.chunk(index);
    if (tiling.takes_packs_throughout(chunk) && holds(range, chunk)) {
        [&]<std::size_t... V>(std::index_sequence<V...>, std::uint64_t position) {
            const decltype(step.template load<Lanes>(position)) loaded[] = {
                step.template load<Lanes>(position + V * warp * Lanes)...};
            (step.template finish<Lanes>(position + V * warp * Lanes, loaded[V]), ...);
        }
        (std::make_index_sequence<Vectors>{}, tiling.vector(index, 0).begin);
        return;
    }
    const auto is_whole = [&](IndexRange vector) { return tiling.takes_packs(vector) && holds(range, vector); };
    decltype(step.template load<Lanes>(0)) loaded[Vectors] = {};
    for (std::size_t v = 0; v < Vectors; ++v) {
        const IndexRange vector = tiling.vector(index, v);
        if (is_whole(vector)) { loaded[v] = step.template load<Lanes>(vector.begin); }
    }
    for (std::size_t v = 0; v < Vectors; ++v) {
        const IndexRange vector = tiling.vector(index, v);
        if (is_whole(vector)) { step.template finish<Lanes>(vector.begin, loaded[v]); }
    }
    SHARDKIT_UNROLL(1)
    for (std::size_t v = 0; v < Vectors; ++v) {
        const IndexRange vector = tiling.vector(index, v);
        if (!is_whole(vector)) { take_elements(vector, range, step); }
    }
}
template <std::size_t Lanes, std::size_t Vectors, class Step>
constexpr void for_each_pack(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index, const Step& step) {
    for_each_pack(tiling, index, tiling.chunk(index), step);
}

/// Runs an index's share in ranges, with step_of(range), one vector after the other: for steps that need the
/// registers of one. The ranges are searched once for a chunk.
template <std::size_t Lanes, std::size_t Vectors, class Range, class StepOf>
constexpr void for_each_pack_in_turn(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index,
                                     const RangeTable<Range>& ranges, const StepOf& step_of) {
    std::uint32_t at = ranges.first_after(tiling.chunk(index).begin);
    std::uint64_t place = tiling.first_place(index);
    SHARDKIT_UNROLL(1)
    do {
        const IndexRange vector = tiling.next_vector(place);
        Range range;
        if (!ranges.read_next(vector.begin, at, range)) { return; }
        if (tiling.takes_packs(vector) && holds(range, vector)) {
            const auto step = step_of(range);
            step.template finish<Lanes>(vector.begin, step.template load<Lanes>(vector.begin));
        } else {
            SHARDKIT_UNROLL(1)
            for (std::uint32_t next = at; next < ranges.count && ranges[next].begin < vector.end; ++next) {
                take_elements(vector, ranges[next], step_of(ranges[next]));
            }
        }
    } while (tiling.has_next(place));
}

}  // namespace shardkit::gpu::detail
