// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu {

/// Where CUB's reduction writes its result: added to the two doubles at `into`.
struct AddToNorm {
    double* into;

    template <class Index>
    constexpr void operator()(Index /*always 0*/, const NormPartial& sum) const noexcept {
        into[0] += sum.sum_of_squares;
        into[1] += sum.nonfinite;
    }
};

}  // namespace shardkit::gpu
