// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace shardkit::tp {

/// Says how activations lie over tp outside of the layers that tp splits. With sequence parallelism norms, dropout
/// and residuals are computed, and kept, for a part of the tokens on each rank; a layer moves the same bytes either
/// way. Source: Korthikanti et al., arXiv 2205.05198
enum class SequenceParallel : std::uint8_t {
    off,  ///< all tokens on every rank
    on    ///< tokens [rank * n, (rank + 1) * n) on each
};

}  // namespace shardkit::tp
