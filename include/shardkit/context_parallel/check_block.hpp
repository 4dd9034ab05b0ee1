// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit::detail {

/// Checks that a block fits in an exchange.
/// @throws std::invalid_argument when the block is larger than those that the exchange was made for
inline void check_block(std::string_view exchange, std::size_t given, std::size_t most, SourceLocation where) {
    if (given > most) {
        throw_invalid_argument(where, "cp::", exchange, ": a block of ", given, " elements, expected at most ", most);
    }
}

}  // namespace shardkit::detail
