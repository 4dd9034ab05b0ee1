// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/compiled/core_rank.hpp>
#include <shardkit/compiled/grid_mesh.hpp>

// Defines run_on_mpi().

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

void run_on_mpi(const AxisGrid& grid, Body body, const void* function, RankOptions options,
                const mpi::Options* mpi_options, SourceLocation where) {
    mpi::run(
        GridMesh{grid},
        [&](auto& rank) {
            ContextOf core(rank);
            body(function, core);
        },
        options, mpi_options == nullptr ? mpi::Options{} : *mpi_options, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
