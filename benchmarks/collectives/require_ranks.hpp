// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "options.hpp"

namespace benchmarks {

/// @throws InputError when the engine cannot have the mesh's ranks: self has one, mpi the processes of its job
inline void require_ranks(EngineKind engine, const program::MeshExtents& mesh, std::size_t processes) {
    const std::string ranks = std::to_string(mesh.world()) + " ranks";
    if (engine == EngineKind::self && mesh.world() != 1) {
        throw program::InputError("--engine self: has one rank, but " + ranks + " were given: expected --ranks 1");
    }
    if (engine == EngineKind::mpi && mesh.world() != processes) {
        throw program::InputError("--engine mpi: this job has " + std::to_string(processes) + " processes, but " +
                                  ranks + " were given: expected mpirun -n " + std::to_string(mesh.world()));
    }
}

}  // namespace benchmarks
