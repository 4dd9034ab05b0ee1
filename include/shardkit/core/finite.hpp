// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>

namespace shardkit::detail {

/// Says whether `value` is neither infinite nor NaN. Looks at its bits, so that the answer holds where the compiler
/// was told that there are no such values (-ffast-math, -Ofast), which takes std::isfinite and every comparison for
/// true.
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
