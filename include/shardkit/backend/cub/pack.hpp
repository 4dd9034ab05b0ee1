// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/backend/cub/pack_pass.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/memory/tensor_table.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// Copies every tensor of `table` into its place in `flat` (pack), or out of it (unpack); padding is left alone.
/// Cost:  one launch for all tensors, whatever their number.
/// @pre   `table` is tensor_table's, in the engine's memory; no tensor overlaps `flat` or another one
template <PackDirection Direction, Element T, class Launch>
void copy_tensors(const Launch& launch, std::span<const TensorPiece<T>> table, std::span<T> flat) {
    using Pass = PackPass<T, Direction>;
    if (table.empty()) { return; }
    const Pass pass{flat.data(), table.data(), table.size(), tile<Pass::lanes>(flat.size(), flat.data())};
    launch(pass.tiling.vectors(), pass, Direction == PackDirection::pack ? "pack" : "unpack");
}

}  // namespace shardkit::gpu
