// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// What parameter groups decide for some of a group's parameters.
struct UpdateChoice {
    double learning_rate_scale = 1;
    double weight_decay = 0;

    friend constexpr bool operator==(const UpdateChoice&, const UpdateChoice&) noexcept = default;
};

}  // namespace shardkit
