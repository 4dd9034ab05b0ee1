// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardkit::detail {

/// Which of a precision's types the elements of a buffer have.
enum class ElementRole : std::uint8_t { gather, gradient, reduction, master, state };

/// Whether what is gathered are codes with scales, and how many elements share a scale; 0: those of a parameter.
struct CodeSizes {
    bool gathered = false;
    std::size_t block = 0;

    friend constexpr bool operator==(const CodeSizes&, const CodeSizes&) noexcept = default;
};

/// The sizes of a group's element types.
struct ElementSizes {
    std::size_t gather = 4;
    std::size_t gradient = 4;
    std::size_t reduction = 4;
    std::size_t master = 4;
    std::size_t state = 4;  ///< of one optimizer state
    bool has_master = false;
    bool reduces_in_place = true;
    bool splits_master = false;  ///< masters are the lower halves of numbers whose upper ones are the parameters
    bool rounds_sums = false;    ///< the reduction type is narrower than the arithmetic in which sums are made
    CodeSizes codes{};

    constexpr std::size_t of(ElementRole element) const noexcept {
        const std::array sizes{gather, gradient, reduction, master, state};
        return sizes[static_cast<std::size_t>(element)];
    }
    friend constexpr bool operator==(const ElementSizes&, const ElementSizes&) noexcept = default;
};

}  // namespace shardkit::detail
