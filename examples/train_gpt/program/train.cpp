// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <cblas.h>

#include <shardkit/core/bf16.hpp>

#include "../model/pass_instances.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {

template Results train_as<double>(const Job& job);
extern template Results train_as<float>(const Job& job);
extern template Results train_as<shardkit::bf16>(const Job& job);

namespace {

/// One rank computes with all processors, unless its matrices are so small that threads would only wait for each
/// other; several ranks as threads compute with one each, so that they do not fight for them.
void share_processors(const Options& options) {
    static const int all = openblas_get_num_threads();
    const std::size_t width = options.model.width;
    const double largest_product = 4.0 * static_cast<double>(options.pass_shape().tokens()) *
                                   static_cast<double>(width) * static_cast<double>(width);
    constexpr double worth_sharing = 1 << 24;
    // With --slices by one thread on any number of ranks: who adds what must not depend on it.
    openblas_set_num_threads(
        options.slices == 0 && options.mesh.world() == 1 && largest_product >= worth_sharing ? all : 1);
}

}  // namespace

Results train(const Job& job) {
    share_processors(job.options);
    return with_dtype(job.options.dtype, [&](auto element) { return train_as<decltype(element)>(job); });
}

}  // namespace train_gpt
