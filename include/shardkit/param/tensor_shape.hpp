// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>

#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// The extents of one tensor, row-major, at most 8. A tensor without extents is a scalar.
struct TensorShape {
    static constexpr std::size_t max_rank = 8;

    std::size_t rank = 0;
    std::array<std::size_t, max_rank> extents{};

    friend constexpr bool operator==(const TensorShape&, const TensorShape&) noexcept = default;

    /// Returns whether the product of the extents fits in 64 bits.
    constexpr bool countable() const noexcept {
        std::size_t product = 1;
        for (std::size_t i = 0; i < rank; ++i) {
            if (extents[i] != 0 && product > std::numeric_limits<std::size_t>::max() / extents[i]) { return false; }
            product *= extents[i];
        }
        return true;
    }
    /// Returns the product of the extents.
    /// @pre countable()
    constexpr std::size_t numel() const noexcept {
        std::size_t product = 1;
        for (std::size_t i = 0; i < rank; ++i) { product *= extents[i]; }
        return product;
    }
    /// Returns the extents as text: "[768, 3072]".
    std::string describe() const {
        std::string text = "[";
        for (std::size_t i = 0; i < rank; ++i) { text += detail::concat(i == 0 ? "" : ", ", extents[i]); }
        return text + "]";
    }
};

}  // namespace shardkit
