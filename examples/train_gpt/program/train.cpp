// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include <shardkit/core/bf16.hpp>

#include "blas_threads.hpp"
#include "job.hpp"

namespace train_gpt {

extern template Results train_as<double>(const Job& job);
extern template Results train_as<float>(const Job& job);
extern template Results train_as<shardkit::bf16>(const Job& job);

Results train(const Job& job) {
    share_processors(job.options);
    if (job.options.gather != GatherKind::full) { return train_coded(job); }
    switch (job.options.dtype) {
        case Dtype::fp64:
            return train_as<double>(job);
        case Dtype::fp32:
            return train_as<float>(job);
        case Dtype::bf16:
            return train_as<shardkit::bf16>(job);
    }
    throw std::logic_error("train: unknown element type");
}

}  // namespace train_gpt
