// SPDX-License-Identifier: Apache-2.0
#include "train_mpi.hpp"

namespace train_gpt {
template Results train_mpi<double>(const Job& job);
}
