// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu {

/// Refuses spans of a kernel that differ in size.
/// @throws std::invalid_argument naming kernel and span unless given == expected
inline void require_size(std::string_view kernel, std::string_view span, std::size_t given, std::size_t expected,
                         SourceLocation where) {
    if (given != expected) {
        throw_invalid_argument(where, "gpu::Kernels::", kernel, ": ", span, " has ", given, " elements, expected ",
                               expected);
    }
}

/// Threads that run in step, on neighbouring indices: a warp.
inline constexpr std::uint64_t warp = 32;

/// Bytes that a thread reads or writes by one instruction at most.
inline constexpr std::size_t widest_access = 16;

/// Elements that one thread takes at a time, in a pass over spans of these types: as many as fill the widest access
/// in the narrowest type, unless the widest type then needs more than two accesses.
template <class... T>
inline constexpr std::size_t lanes_for = std::min(widest_access / std::min({sizeof(T)...}),
                                                  2 * widest_access / std::max({sizeof(T)...}));

/// `Lanes` neighbouring elements, aligned so that a copy of all takes accesses of 16 bytes, or one shorter one.
template <class T, std::size_t Lanes>
struct alignas(std::max(alignof(T), std::min(Lanes * sizeof(T), widest_access))) AlignedPack {
    T lane[Lanes];
};

/// `Lanes` neighbouring elements from `from`, in as few accesses as their alignment allows.
/// @pre `from` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr AlignedPack<T, Lanes> load(const T* from) noexcept {
    return *reinterpret_cast<const AlignedPack<T, Lanes>*>(from);
}

/// The same way back.
/// @pre `to` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr void store(const AlignedPack<T, Lanes>& pack, T* to) noexcept {
    *reinterpret_cast<AlignedPack<T, Lanes>*>(to) = pack;
}

/// `element` as a To: rounded to nearest, ties to even; between fp64 and a 16-bit type by way of fp32.
template <class To, class From>
constexpr To converted(From element) noexcept {
    return static_cast<To>(static_cast<Arithmetic<To>>(static_cast<Arithmetic<From>>(element)));
}

/// The same for each lane.
template <class To, class From, std::size_t Lanes>
constexpr AlignedPack<To, Lanes> converted_pack(const AlignedPack<From, Lanes>& from) noexcept {
    AlignedPack<To, Lanes> to{};
    for (std::size_t i = 0; i < Lanes; ++i) { to.lane[i] = converted<To>(from.lane[i]); }
    return to;
}

/// How a pass over `count` elements is cut into vectors of `Lanes`, one for each thread. Vector v holds the positions
/// [v * Lanes - shift, (v + 1) * Lanes - shift), less what is outside of [0, count): so the first and the last may be
/// shorter. `aligned`: whole vectors lie at addresses that AlignedPack wants, in every span of the pass.
/// @post the vectors are disjoint and cover [0, count)
template <std::size_t Lanes>
struct Tiling {
    std::uint64_t count = 0;
    std::uint32_t shift = 0;
    bool aligned = false;

    constexpr std::uint64_t vectors() const noexcept {
        return count == 0 ? 0 : (count + shift) / Lanes + ((count + shift) % Lanes != 0 ? 1 : 0);
    }
    /// Indices of the pass.
    constexpr std::uint64_t indices() const noexcept { return vectors(); }
    constexpr IndexRange positions(std::uint64_t vector) const noexcept {
        const std::uint64_t end = (vector + 1) * Lanes - shift;
        return {vector == 0 ? 0 : vector * Lanes - shift, end < count ? end : count};
    }
    constexpr bool takes_packs(IndexRange range) const noexcept { return aligned && range.size() == Lanes; }
};

namespace detail {

/// Elements from the last address before `at` (or from `at` itself) where a pack may lie.
template <std::size_t Lanes, class T>
std::uint32_t elements_past_pack(const T* at) noexcept {
    constexpr std::size_t alignment = alignof(AlignedPack<T, Lanes>);
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) % alignment / sizeof(T));
}

}  // namespace detail

/// The tiling of `count` elements of spans that start at `starts`; null stands for a span that the pass leaves out.
/// Spans whose starts are unlike within 16 bytes, relative to their elements' sizes, are not `aligned`.
template <std::size_t Lanes, class... T>
Tiling<Lanes> tile(std::uint64_t count, const T*... starts) noexcept {
    // The shift of the narrowest type is the largest where they agree; each is compared within its own period.
    std::uint32_t shift = 0;
    const auto take = [&](const auto* at) {
        if (at != nullptr) { shift = std::max(shift, detail::elements_past_pack<Lanes>(at)); }
    };
    (take(starts), ...);
    const auto agrees = [&]<class U>(const U* at) {
        constexpr std::size_t period = alignof(AlignedPack<U, Lanes>) / sizeof(U);
        return at == nullptr || detail::elements_past_pack<Lanes>(at) == shift % period;
    };
    const bool aligned = (agrees(starts) && ...);
    return {count, aligned ? shift : 0, aligned};
}

/// The first of `count` sorted, disjoint ranges that ends after `position`; `count` when none does.
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

/// One thread's share of a pass: step.template at<Lanes>(position) where vector number `vector` is whole and aligned,
/// else step.template at<1>(position) for each of its positions.
template <std::size_t Lanes, class Step>
constexpr void for_each_pack(const Tiling<Lanes>& tiling, std::uint64_t vector, const Step& step) {
    const IndexRange range = tiling.positions(vector);
    if (tiling.takes_packs(range)) {
        step.template at<Lanes>(range.begin);
    } else {
        for (std::uint64_t position = range.begin; position < range.end; ++position) {
            step.template at<1>(position);
        }
    }
}

/// The same for the positions that lie in one of `count` sorted, disjoint ranges, which `step` gets as well:
/// step.template at<N>(position, range). The range is looked for once per vector; a vector that the border of a
/// range cuts is taken element by element.
template <std::size_t Lanes, class Range, class Step>
constexpr void for_each_pack_in(const Tiling<Lanes>& tiling, std::uint64_t vector, const Range* ranges,
                                std::size_t count, const Step& step) {
    const IndexRange positions = tiling.positions(vector);
    std::size_t at = first_ending_after(ranges, count, positions.begin);
    if (at < count && ranges[at].begin <= positions.begin && positions.end <= ranges[at].end &&
        tiling.takes_packs(positions)) {
        step.template at<Lanes>(positions.begin, ranges[at]);
        return;
    }
    for (; at < count && ranges[at].begin < positions.end; ++at) {
        const std::uint64_t end = ranges[at].end < positions.end ? ranges[at].end : positions.end;
        std::uint64_t position = ranges[at].begin > positions.begin ? ranges[at].begin : positions.begin;
        for (; position < end; ++position) { step.template at<1>(position, ranges[at]); }
    }
}

}  // namespace shardkit::gpu
