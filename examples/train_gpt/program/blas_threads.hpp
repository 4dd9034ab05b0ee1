// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cblas.h>

#include "options.hpp"

namespace train_gpt {

/// One rank computes with all processors, unless its matrices are so small that threads would only wait for each
/// other; several ranks as threads compute with one each, so that they do not fight for them.
inline void share_processors(const Options& options) {
    static const int all = openblas_get_num_threads();
    const std::size_t width = options.model.width;
    const double largest_product = 4.0 * static_cast<double>(options.pass_shape().tokens()) *
                                   static_cast<double>(width) * static_cast<double>(width);
    constexpr double worth_sharing = 1 << 24;
    // With --slices by one thread on any number of ranks: who adds what must not depend on it.
    openblas_set_num_threads(
        options.slices == 0 && options.mesh.world() == 1 && largest_product >= worth_sharing ? all : 1);
}

}  // namespace train_gpt
