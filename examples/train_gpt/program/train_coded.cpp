// SPDX-License-Identifier: Apache-2.0
#include <shardkit/core/codes.hpp>

#include "../model/pass_instances.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {

Results train_coded(const Job& job) {
    return job.options.gather == GatherKind::e4m3 ? train_as<float, sk::e4m3>(job)
                                                  : train_as<float, sk::block_int8>(job);
}

}  // namespace train_gpt
