// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardkit::detail {

/// A hash of texts and numbers; equal sequences have equal hashes.
/// Source:  Fowler, Noll, Vo: FNV-1a, 64 bits
struct Fnv {
    std::uint64_t hash = 14695981039346656037U;

    constexpr void add(std::string_view text) noexcept {
        for (const char c : text) { add_byte(static_cast<unsigned char>(c)); }
        add(text.size());
    }
    constexpr void add(std::span<const std::size_t> numbers) noexcept {
        for (const std::size_t number : numbers) { add(number); }
        add(numbers.size());
    }
    constexpr void add(std::uint64_t number) noexcept {
        for (unsigned shift = 0; shift < 64; shift += 8) { add_byte(number >> shift & 0xFFU); }
    }

  private:
    constexpr void add_byte(std::uint64_t byte) noexcept { hash = (hash ^ byte) * 1099511628211U; }
};

}  // namespace shardkit::detail
