// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "options.hpp"

namespace benchmarks {

/// @throws InputError when the engine cannot have the mesh's ranks: self has one, mpi and nccl the processes of
/// their job
inline void require_ranks(EngineKind engine, const program::MeshExtents& mesh, std::size_t processes) {
    const std::string ranks = std::to_string(mesh.world()) + " ranks";
    if (engine == EngineKind::self && mesh.world() != 1) {
        throw program::InputError("--engine self: has one rank, but " + ranks + " were given: expected --ranks 1");
    }
    if (engine == EngineKind::mpi && mesh.world() != processes) {
        throw program::InputError("--engine mpi: this job has " + std::to_string(processes) + " processes, but " +
                                  ranks + " were given: expected mpirun -n " + std::to_string(mesh.world()));
    }
    if (engine == EngineKind::nccl && mesh.world() != processes) {
        throw program::InputError("--engine nccl: this job has " + std::to_string(processes) +
                                  (processes == 1 ? " process" : " processes") + ", but " + ranks +
                                  " were given: expected WORLD_SIZE=" + std::to_string(mesh.world()) +
                                  " of a launcher, or benchmarks/run without one");
    }
}

}  // namespace benchmarks
