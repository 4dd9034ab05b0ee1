// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit::detail {

/// Refuses a block that an exchange has no room for.
/// @throws std::invalid_argument when a block is larger than those that an exchange was made for
inline void check_block(std::string_view exchange, std::size_t given, std::size_t most, SourceLocation where) {
    if (given > most) {
        throw_invalid_argument(where, "cp::", exchange, ": a block of ", given, " elements, expected at most ", most);
    }
}

}  // namespace shardkit::detail
