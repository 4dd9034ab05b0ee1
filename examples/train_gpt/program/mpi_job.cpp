// SPDX-License-Identifier: Apache-2.0
#include "mpi_job.hpp"

#include <shardkit/backend/mpi/engine.hpp>
#include <shardkit/backend/mpi/environment.hpp>

#include "asks_for_mpi.hpp"

namespace train_gpt {

struct MpiJob::Environment {
    shardkit::mpi::Environment mpi;
};

MpiJob::MpiJob(int count, const char* const* arguments)
    : environment_(asks_for_mpi(count, arguments) ? std::make_unique<Environment>() : nullptr) {}
MpiJob::~MpiJob() = default;

std::size_t MpiJob::processes() const { return environment_ ? environment_->mpi.size() : 1; }
bool MpiJob::reports() const { return !environment_ || environment_->mpi.rank() == 0; }

MpiJob::Agreement MpiJob::agree(int code) const {
    if (!environment_) { return {code, code != 0}; }
    const int rank = static_cast<int>(environment_->mpi.rank());
    const int mine[] = {code, code == 0 ? -static_cast<int>(processes()) : -rank};
    int most[2];
    MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return {most[0], code != 0 && -most[1] == rank};
}

shardkit::EngineTraits mpi_traits() { return shardkit::mpi::Engine<>::traits; }

}  // namespace train_gpt
