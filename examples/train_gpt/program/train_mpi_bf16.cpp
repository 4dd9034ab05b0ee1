// SPDX-License-Identifier: Apache-2.0
#include "../model/pass_instances.hpp"
#include "train_mpi.hpp"

namespace train_gpt {
template Results train_mpi<shardkit::bf16>(const Job& job);
}
