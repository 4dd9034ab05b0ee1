// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace shardkit {

/// Counts things of one kind in 64 bits, so that groups past 2^32 elements are ordinary.
/// Two kinds do not mix: adding bytes to elements does not compile.
template <class Kind>
struct Count {
    std::uint64_t value{};

    constexpr Count() noexcept = default;
    constexpr explicit Count(std::uint64_t n) noexcept : value(n) {}

    friend constexpr auto operator<=>(Count, Count) noexcept = default;
    friend constexpr Count operator+(Count a, Count b) noexcept { return Count(a.value + b.value); }
    friend constexpr Count operator-(Count a, Count b) noexcept { return Count(a.value - b.value); }
    friend constexpr Count operator*(Count a, std::uint64_t n) noexcept { return Count(a.value * n); }
    friend constexpr Count operator*(std::uint64_t n, Count a) noexcept { return a * n; }
    constexpr Count& operator+=(Count other) noexcept {
        value += other.value;
        return *this;
    }
};

/// Counts elements.
using ElementCount = Count<struct ElementKind>;
/// Counts bytes.
using ByteCount = Count<struct ByteKind>;

/// Returns the bytes of `count` elements of `element_size` bytes each.
constexpr ByteCount bytes(ElementCount count, std::uint64_t element_size) noexcept {
    return ByteCount(count.value * element_size);
}

}  // namespace shardkit
