// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>

namespace program {

/// Whether mpirun or its like (Open MPI's, MPICH's, Slurm's) started this process.
inline bool started_by_mpirun() noexcept {
    constexpr std::array variables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"};
    return std::any_of(variables.begin(), variables.end(), [](const char* v) { return std::getenv(v) != nullptr; });
}

}  // namespace program
