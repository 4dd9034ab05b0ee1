// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "half_oracle.hpp"

namespace shardkit::test {

inline bool same_number(long double a, long double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Every one of the 65536 patterns widens to its value, and comes back as itself (NaN as a quiet NaN).
template <class Half>
void check_every_pattern(BinaryFormat format) {
    std::uint32_t wrong_values = 0;
    std::uint32_t wrong_returns = 0;
    const std::uint32_t quiet = 1U << (format.precision - 2);
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        Half half;
        half.bits = static_cast<std::uint16_t>(bits);
        const auto value = static_cast<float>(half);
        wrong_values += !same_number(value, decode(format, half.bits));
        const Half back(value);
        if (std::isnan(value)) {
            wrong_returns += !std::isnan(decode(format, back.bits)) || (back.bits & quiet) == 0 ||
                             (back.bits & 0x8000U) != (bits & 0x8000U);
        } else {
            wrong_returns += back.bits != bits;
        }
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_returns == 0);
}

/// Rounds every case as the oracle does; the first wrong one is shown.
template <class Half>
void check_rounding(BinaryFormat format) {
    std::uint32_t wrong = 0;
    for (const float value : rounding_cases(format)) {
        const auto given = static_cast<float>(Half(value));
        const long double expected = round_to(format, value);
        if (same_number(given, expected)) { continue; }
        if (wrong++ == 0) {
            CAPTURE(value);
            CAPTURE(std::bit_cast<std::uint32_t>(value));
            CHECK(given == static_cast<float>(expected));
        }
    }
    CHECK(wrong == 0);
}

}  // namespace shardkit::test
