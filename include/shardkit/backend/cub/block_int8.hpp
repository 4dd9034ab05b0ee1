// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/cub/dequantize_pass.hpp>
#include <shardkit/backend/cub/quantize_pass.hpp>
#include <shardkit/backend/cub/require_size.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/quantize/block_int8.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// As the host's shardkit::quantize, in one launch, with the same bits.
template <std::size_t Block, FloatingElement T, class Launch>
void quantize(const Launch& launch, std::span<const T> from, std::span<std::int8_t> codes, std::span<float> scales) {
    using Pass = QuantizePass<T, Block>;
    require_size("quantize", "codes", codes.size(), from.size());
    require_size("quantize", "scales", scales.size(), BlockInt8<Block>::blocks(from.size()));
    const auto tiling = tile<Pass::lanes>(from.size(), from.data(), codes.data());
    launch(scales.size(),
           Pass{from.data(), codes.data(), scales.data(), from.size(), tiling.aligned && tiling.shift == 0},
           "quantize");
}

/// As the host's shardkit::dequantize, likewise.
template <std::size_t Block, FloatingElement T, class Launch>
void dequantize(const Launch& launch, std::span<const std::int8_t> codes, std::span<const float> scales,
                std::span<T> to) {
    using Pass = DequantizePass<T, Block>;
    require_size("dequantize", "to", to.size(), codes.size());
    require_size("dequantize", "scales", scales.size(), BlockInt8<Block>::blocks(codes.size()));
    const Pass pass{codes.data(), scales.data(), to.data(), tile<Pass::lanes>(to.size(), codes.data(), to.data())};
    launch(pass.tiling.vectors(), pass, "dequantize");
}

}  // namespace shardkit::gpu
