// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// How far the updates of a group and of each of its parameters are, as numbers that a checkpoint keeps; the same on
/// every rank.
struct GroupProgress {
    struct Number {
        std::string_view name;
        bool real = false;  ///< a double's bits
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// The elements of a parameter from `begin` on, row-major, to the next part's: further rows, say.
    struct Part {
        std::size_t parameter = 0;
        std::size_t begin = 0;
        std::vector<std::uint64_t> numbers;
    };

    List<Number> numbers;                   ///< what there is of each: its steps, and running products
    std::vector<std::uint64_t> own;         ///< the group's: the first is of the steps that it took part in
    std::vector<std::uint64_t> beginning;   ///< what they are before the first step
    List<Part> parts;                       ///< of parameters that are not everywhere as far, in order
    std::vector<std::uint64_t> parameters;  ///< of each parameter, one's numbers behind the other's
    List<char> updated;                     ///< whether the optimizer updates each parameter, and has states of it

    std::span<std::uint64_t> of(std::size_t parameter) noexcept {
        return {parameters.data() + parameter * numbers.size(), numbers.size()};
    }
    std::span<const std::uint64_t> of(std::size_t parameter) const noexcept {
        return {parameters.data() + parameter * numbers.size(), numbers.size()};
    }
};

}  // namespace shardkit::detail
