// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit::detail {
struct OffloadPiece;
}

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
class UpdateRunner;
}

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// What optimizers do on a device alone. backend/device/launches.hpp defines it.
struct DeviceOptimizers {
    spi::UpdateRunner* (*make_launches)();
    /// Allocates the slots of a rank where it has none yet.
    void (*make_slots)(Rank& rank, std::string_view path, Offload offload);
    /// See cut_at_pieces.
    List<OffloadPiece> (*cut)(List<rules::UpdateRange>& ranges, std::size_t elements, std::size_t piece,
                              bool numbered);
};
/// Set before main where a file of the program has the header of a device's engine, so that others do not compile it.
inline constinit const DeviceOptimizers* device_optimizers = nullptr;

/// @throws UsageError where no file of the program has it
inline const DeviceOptimizers& on_device(SourceLocation where) {
    if (device_optimizers != nullptr) [[likely]] { return *device_optimizers; }
    throw_usage_error(where,
                      "optimizer: its model is on a device, whose engine's header no file of this program has; "
                      "expected shardkit/backend/device/launches.hpp in one");
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
