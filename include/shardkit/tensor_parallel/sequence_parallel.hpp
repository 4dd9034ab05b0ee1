// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit::tp {

/// How activations are distributed over tp outside of the layers that are split over it. With sequence parallelism,
/// each rank computes and keeps norms, dropout and residuals for a part of the tokens; a layer moves the same bytes
/// either way.
/// Source: Korthikanti et al., arXiv 2205.05198
enum class SequenceParallel : std::uint8_t {
    off,  ///< all tokens on every rank
    on    ///< tokens [rank * n, (rank + 1) * n) on each rank
};

}  // namespace shardkit::tp
