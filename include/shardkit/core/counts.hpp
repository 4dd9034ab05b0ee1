// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace shardkit {

/// A count of one kind of things, in 64 bits, so that groups of more than 2^32 elements are no special case. Kinds do
/// not mix: adding bytes to elements does not compile.
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

/// A number of elements.
using ElementCount = Count<struct ElementKind>;
/// A number of bytes.
using ByteCount = Count<struct ByteKind>;

/// Returns the bytes of `count` elements of `element_size` bytes each.
constexpr ByteCount bytes(ElementCount count, std::uint64_t element_size) noexcept {
    return ByteCount(count.value * element_size);
}

}  // namespace shardkit
