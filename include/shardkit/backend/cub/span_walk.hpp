// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu::detail {

/// Refuses spans of a kernel that differ in size.
/// @throws std::invalid_argument naming kernel and span unless given == expected
inline void require_size(std::string_view kernel, std::string_view span, std::size_t given, std::size_t expected,
                         SourceLocation where) {
    if (given != expected) {
        throw_invalid_argument(where, "gpu::Kernels::", kernel, ": ", span, " has ", given, " elements, expected ",
                               expected);
    }
}

/// Bounds the bytes that a thread reads or writes by one instruction.
inline constexpr std::size_t widest_access = 16;

/// Counts the elements of a vector, which one thread takes at a time, in a pass over spans of these types: as many as
/// fill the widest access in the widest type. Neighbouring threads then fill whole sectors of memory in every type.
template <class... T>
inline constexpr std::size_t lanes_for = widest_access / std::max({sizeof(T)...});

/// Holds `Lanes` neighbouring elements, of at most 16 bytes, aligned so that a copy of all takes one access.
template <class T, std::size_t Lanes>
struct alignas(Lanes * sizeof(T)) AlignedPack {
    static_assert(Lanes * sizeof(T) <= widest_access);
    T lane[Lanes];
};

/// Loads `Lanes` neighbouring elements from `from`, in one access.
/// @pre `from` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr AlignedPack<T, Lanes> load(const T* from) noexcept {
    return *reinterpret_cast<const AlignedPack<T, Lanes>*>(from);
}

/// Stores them back likewise.
/// @pre `to` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr void store(const AlignedPack<T, Lanes>& pack, T* to) noexcept {
    *reinterpret_cast<AlignedPack<T, Lanes>*>(to) = pack;
}

/// Returns `pointer`, which kernels find in a table: the compiler does not know that it leads into the device's
/// memory.
template <class T>
constexpr T* from_table(T* pointer) noexcept {
#ifdef __CUDA_ARCH__
    // A value of its own: what two branches do alike with one pointer is merged, which splits the packs of one of
    // them.
    asm("" : "+l"(pointer));
    __builtin_assume(__isGlobal(pointer));
#endif
    return pointer;
}

/// Returns `element` as a To: rounded to nearest, ties to even; between fp64 and a 16-bit type by way of fp32.
template <class To, class From>
constexpr To converted(From element) noexcept {
    return static_cast<To>(static_cast<Arithmetic<To>>(static_cast<Arithmetic<From>>(element)));
}

/// Converts each lane likewise.
template <class To, class From, std::size_t Lanes>
constexpr AlignedPack<To, Lanes> converted_pack(const AlignedPack<From, Lanes>& from) noexcept {
    AlignedPack<To, Lanes> to{};
    for (std::size_t i = 0; i < Lanes; ++i) { to.lane[i] = converted<To>(from.lane[i]); }
    return to;
}

/// Counts the threads that run in step, on neighbouring indices: a warp.
inline constexpr std::uint64_t warp = 32;

/// Says how a pass over `count` elements is cut into vectors of `Lanes`. Vector v holds the positions
/// [v * Lanes - shift, (v + 1) * Lanes - shift), less what is outside of [0, count): so the first and the last may be
/// shorter. `aligned`: whole vectors lie at addresses that AlignedPack wants, in every span of the pass.
/// An index takes `Vectors` of them. With more than one, a warp takes a chunk of `warp * Vectors` vectors, and index
/// i, lane i % warp of chunk i / warp, each warp-th of them, so that a warp's accesses are neighbours. With one, an
/// index is its own chunk.
template <std::size_t Lanes, std::size_t Vectors = 1>
struct Tiling {
    static constexpr std::uint64_t sharers = Vectors > 1 ? warp : 1;  ///< indices of a chunk
    static constexpr std::uint64_t chunk_elements = sharers * Vectors * Lanes;

    std::uint64_t count;
    std::uint32_t shift;
    bool aligned;

    /// Returns the number of indices of the pass, whole chunks.
    constexpr std::uint64_t indices() const noexcept {
        return (count + shift + chunk_elements - 1) / chunk_elements * sharers;
    }
    /// Returns the positions of the `v`-th vector of an index.
    constexpr IndexRange vector(std::uint64_t index, std::uint64_t v) const noexcept {
        return positions(index / sharers * chunk_elements + (index % sharers + v * sharers) * Lanes, Lanes);
    }
    /// Returns the positions of the chunk that an index is part of.
    constexpr IndexRange chunk(std::uint64_t index) const noexcept {
        return positions(index / sharers * chunk_elements, chunk_elements);
    }
    /// Says whether a vector takes packs, or all of a chunk.
    constexpr bool takes_packs(IndexRange vector) const noexcept { return aligned && vector.size() == Lanes; }
    constexpr bool takes_packs_throughout(IndexRange chunk) const noexcept {
        return aligned && chunk.size() == chunk_elements;
    }

  private:
    /// Returns `elements` positions, the first at `place` places behind the start of vector 0.
    constexpr IndexRange positions(std::uint64_t place, std::uint64_t elements) const noexcept {
        const std::uint64_t end = place + elements - shift;  // a vector is longer than the shift
        return {place < shift ? 0 : place - shift, end < count ? end : count};
    }
};

/// Returns the number of elements from the last address before `at` (or from `at` itself) where a pack may lie.
template <std::size_t Lanes, class T>
constexpr std::uint32_t elements_past_pack(const T* at) noexcept {
    constexpr std::size_t alignment = alignof(AlignedPack<T, Lanes>);
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) % alignment / sizeof(T));
}

/// Returns the tiling of `count` elements of spans that start at `starts`; null stands for a span that the pass
/// leaves out. Spans whose starts are unlike within a pack, in elements, are not `aligned`.
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
template <class Range>
constexpr std::size_t first_ending_after(const Range* ranges, std::size_t count, std::uint64_t position) {
    std::size_t low = 0;
    std::size_t high = count;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
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

/// Takes all vectors of an index, whole ones, by a step. What is loaded is loaded before anything is stored, as no
/// compiler knows that the stores do not overwrite it.
template <std::size_t Lanes, std::size_t Vectors>
struct TakePacks {
    std::uint64_t position;  ///< of the first vector

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

/// Takes what the vectors of an index have in `range`, in a chunk that is cut: the vectors that the range holds as
/// above, others element by element.
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

/// Does an index's share of a pass with a step, which has
///     step.template load<N>(position)              what the elements [position, position + N) are computed from
///     step.template finish<N>(position, loaded)    computes and stores them
/// with N = Lanes where vectors are whole and aligned, element by element elsewhere.
template <std::size_t Lanes, std::size_t Vectors, class Step>
constexpr void for_each_pack(const Tiling<Lanes, Vectors>& tiling, std::uint64_t index, const Step& step) {
    const IndexRange chunk = tiling.chunk(index);
    if (tiling.takes_packs_throughout(chunk)) {
        TakePacks<Lanes, Vectors>{tiling.vector(index, 0).begin}(step);
    } else {
        TakeParts<Lanes, Vectors>{tiling, index, chunk}(step);
    }
}

/// Does the same for the positions that lie in one of `count` sorted, disjoint ranges: pass.in(range, take) calls
/// take(step) with the step for a range. The range is looked for once per chunk.
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
