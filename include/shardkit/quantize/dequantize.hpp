// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/block_int8.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

/// Decodes `codes` with `scales`, rounded to T, in the caller's thread.
/// Shapes:  codes [n], scales [BlockInt8<Block>::blocks(n)], to [n].   Cost: one pass.
/// @throws  std::invalid_argument when sizes disagree
template <std::size_t Block = BlockInt8<>::block, FloatingElement T>
void dequantize(std::span<const std::int8_t> codes, std::span<const float> scales, std::span<T> to,
                SourceLocation where = SourceLocation::current()) {
    using Format = BlockInt8<Block>;
    if (to.size() != codes.size() || scales.size() != Format::blocks(codes.size())) {
        throw_invalid_argument(where, "dequantize: ", to.size(), " elements and ", scales.size(), " scales for ",
                               codes.size(), " codes, expected ", codes.size(), " and ",
                               Format::blocks(codes.size()));
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = static_cast<T>(static_cast<Arithmetic<T>>(Format::decode(codes[i], scales[i / Block])));
    }
}

}  // namespace shardkit
