// SPDX-License-Identifier: Apache-2.0
#include "train_mpi.hpp"

namespace train_gpt {
template Results train_mpi<shardkit::bf16>(const Job& job);
}
