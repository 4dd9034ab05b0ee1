// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/block_int8.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

/// Writes the codes and scales of `from`, in the caller's thread.
/// Shapes:  from [n], codes [n], scales [BlockInt8<Block>::blocks(n)].   Cost: two passes over each block.
/// @throws  std::invalid_argument when sizes disagree
template <std::size_t Block = BlockInt8<>::block, FloatingElement T>
void quantize(std::span<const T> from, std::span<std::int8_t> codes, std::span<float> scales,
              SourceLocation where = SourceLocation::current()) {
    using Format = BlockInt8<Block>;
    if (codes.size() != from.size() || scales.size() != Format::blocks(from.size())) {
        throw_invalid_argument(where, "quantize: ", codes.size(), " codes and ", scales.size(), " scales for ",
                               from.size(), " elements, expected ", from.size(), " and ",
                               Format::blocks(from.size()));
    }
    const auto as_float = [](T element) { return static_cast<float>(static_cast<Arithmetic<T>>(element)); };
    for (std::size_t block = 0; block < scales.size(); ++block) {
        const std::size_t begin = block * Block;
        const std::size_t end = std::min(begin + Block, from.size());
        float largest = 0;
        for (std::size_t i = begin; i < end; ++i) { largest = Format::larger(largest, as_float(from[i])); }
        const float scale = Format::scale(largest);
        scales[block] = scale;
        for (std::size_t i = begin; i < end; ++i) { codes[i] = Format::encode(as_float(from[i]), scale); }
    }
}

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
