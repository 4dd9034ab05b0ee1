// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>

namespace shardkit::detail {

/// Returns whether `value` is neither infinite nor NaN. It checks the bits, so that the answer is right even with
/// -ffast-math or -Ofast, under which compilers assume that std::isfinite and every comparison are true.
template <std::floating_point T>
constexpr bool is_finite(T value) noexcept {
    static_assert(std::numeric_limits<T>::is_iec559 && (sizeof(T) == 4 || sizeof(T) == 8));
    if constexpr (sizeof(T) == 4) {
        return (std::bit_cast<std::uint32_t>(value) & 0x7f80'0000U) != 0x7f80'0000U;
    } else {
        return (std::bit_cast<std::uint64_t>(value) & 0x7ff0'0000'0000'0000U) != 0x7ff0'0000'0000'0000U;
    }
}

}  // namespace shardkit::detail
