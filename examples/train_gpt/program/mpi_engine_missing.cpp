// SPDX-License-Identifier: Apache-2.0
// In place of mpi_engine.cpp and train_mpi_*.cpp where the build found no MPI.
#include <shardkit/core/bf16.hpp>

#include "../../common/mpi_missing.hpp"
#include "mpi_engine.hpp"

namespace train_gpt {

template <class T>
Results train_mpi(const Job&) {
    program::throw_mpi_missing();
}
template Results train_mpi<double>(const Job& job);
template Results train_mpi<float>(const Job& job);
template Results train_mpi<shardkit::bf16>(const Job& job);

shardkit::engine::Traits mpi_traits() { return {}; }

}  // namespace train_gpt
