// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace shardkit {

/// A number of bytes, in 64 bits. A bare number is none: adding one to it does not compile.
struct ByteCount {
    std::uint64_t value{};

    constexpr ByteCount() noexcept = default;
    constexpr explicit ByteCount(std::uint64_t n) noexcept : value(n) {}

    friend constexpr bool operator==(ByteCount, ByteCount) noexcept = default;
    friend constexpr auto operator<=>(ByteCount, ByteCount) noexcept = default;
    friend constexpr ByteCount operator+(ByteCount a, ByteCount b) noexcept { return ByteCount(a.value + b.value); }
    friend constexpr ByteCount operator-(ByteCount a, ByteCount b) noexcept { return ByteCount(a.value - b.value); }
    friend constexpr ByteCount operator*(ByteCount a, std::uint64_t n) noexcept { return ByteCount(a.value * n); }
    friend constexpr ByteCount operator*(std::uint64_t n, ByteCount a) noexcept { return a * n; }
    constexpr ByteCount& operator+=(ByteCount other) noexcept {
        value += other.value;
        return *this;
    }
};

}  // namespace shardkit
