// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu {

/// The sum of two; CUB's reduction operator.
struct AddNormPartials {
    constexpr NormPartial operator()(NormPartial a, const NormPartial& b) const noexcept { return a += b; }
};

}  // namespace shardkit::gpu
