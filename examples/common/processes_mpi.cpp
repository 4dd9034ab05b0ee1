// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/moved.hpp>

#include "asks_for_engine.hpp"
#include "processes.hpp"

namespace program {

struct Processes::Environment {
    shardkit::mpi::Environment mpi;
    std::size_t ranks_per_host = 0;

    Environment() {
        shardkit::mpi::World world(MPI_COMM_WORLD, {.shared_memory = false});
        ranks_per_host = shardkit::ranks_per_host(shardkit::mpi::Communicator<>(world));
        world.finish();
    }
};

Processes::Processes(int count, const char* const* arguments)
    : environment_(joins_mpi_job(count, arguments) ? std::make_unique<Environment>() : nullptr),
      place_(asks_for_engine("nccl", count, arguments) ? Place::from_environment() : Place{}) {}
Processes::~Processes() = default;

std::size_t Processes::count() const { return environment_ ? environment_->mpi.size() : place_.ranks; }
std::size_t Processes::ranks_per_host() const { return environment_ ? environment_->ranks_per_host : 0; }
bool Processes::reports() const { return environment_ ? environment_->mpi.rank() == 0 : place_.rank == 0; }

std::string Processes::mpi_version() const {
    if (!environment_) { return {}; }
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data());
    return version.substr(0, version.find_first_of(",\n"));
}

Processes::Agreement Processes::agree(int code) const {
    if (!environment_) { return {code, code != 0 && place_.speaks()}; }
    const int rank = static_cast<int>(environment_->mpi.rank());
    const int mine[] = {code, code == 0 ? -static_cast<int>(count()) : -rank};
    int most[2];
    MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return {most[0], code != 0 && -most[1] == rank};
}

}  // namespace program
