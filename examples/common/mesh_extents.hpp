// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <limits>
#include <string>

#include "input_error.hpp"

namespace program {

/// A mesh as a flag gives it: "2x2x1", data x tensor x context parallel ranks.
struct MeshExtents {
    std::size_t dp = 1;
    std::size_t tp = 1;
    std::size_t cp = 1;

    constexpr std::size_t world() const noexcept { return dp * tp * cp; }
    constexpr std::size_t extent(std::size_t axis) const noexcept { return axis == 0 ? dp : axis == 1 ? tp : cp; }
    std::string describe() const { return std::to_string(dp) + "x" + std::to_string(tp) + "x" + std::to_string(cp); }
};

/// @throws InputError for anything but three whole numbers of at least 1 whose product is at most `most_ranks`
inline MeshExtents parse_mesh(const std::string& flag, const std::string& given,
                              std::size_t most_ranks = std::numeric_limits<std::size_t>::max()) {
    std::size_t extents[3]{};
    const char* at = given.data();
    const char* end = at + given.size();
    for (std::size_t i = 0; i < 3; ++i) {
        const auto [stop, error] = std::from_chars(at, end, extents[i]);
        const bool separated = i == 2 ? stop == end : stop != end && *stop == 'x';
        if (error != std::errc{} || !separated || extents[i] == 0) {
            throw bad_flag(flag, given, "DPxTPxCP, three whole numbers of at least 1, for example 2x2x1");
        }
        at = stop + 1;
    }
    std::size_t ranks = 1;
    for (const std::size_t extent : extents) {
        if (extent > most_ranks / ranks) {
            throw bad_flag(flag, given, "at most " + std::to_string(most_ranks) + " ranks");
        }
        ranks *= extent;
    }
    return {extents[0], extents[1], extents[2]};
}

}  // namespace program
