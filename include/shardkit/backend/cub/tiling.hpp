// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/aligned_pack.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu {

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

}  // namespace shardkit::gpu
