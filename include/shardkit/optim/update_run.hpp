// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit {

/// The elements of one parameter among those that a rank updates: [begin, end) of the pass's spans. `update` is the
/// place of the parameter's update in the table that goes with the runs.
struct UpdateRun {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t update = 0;

    friend constexpr bool operator==(const UpdateRun&, const UpdateRun&) noexcept = default;
};

}  // namespace shardkit
