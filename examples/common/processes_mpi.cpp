// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <array>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/ranks_per_host.hpp>

#include "asks_for_engine.hpp"
#include "processes.hpp"

namespace program {

namespace {

/// Collective over the job. Processes of a host may be bound to processors of their own, or to all of them.
bool has_spare_processor() {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int processes = 0;
    MPI_Comm_size(host, &processes);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int spare = sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) > 1 ? 1 : 0;
    cpu_set_t all;
    MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, host);
    MPI_Comm_free(&host);
    if (CPU_COUNT(&all) <= processes) { spare = 0; }
    int agreed = 0;
    MPI_Allreduce(&spare, &agreed, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return agreed == 1;
}

}  // namespace

struct Processes::Environment {
    shardkit::mpi::Environment mpi;
    std::size_t ranks_per_host = 0;
    bool spare_processor = false;

    Environment() {
        shardkit::mpi::World world(MPI_COMM_WORLD, {.shared_memory = false});
        ranks_per_host = shardkit::ranks_per_host(world.communicator());
        world.finish();
        spare_processor = has_spare_processor();
    }
};

Processes::Processes(int count, const char* const* arguments)
    : environment_(joins_mpi_job(count, arguments) ? std::make_unique<Environment>() : nullptr),
      place_(asks_for_engine("nccl", count, arguments) ? Place::from_environment() : Place{}) {}
Processes::~Processes() = default;

std::size_t Processes::count() const { return environment_ ? environment_->mpi.size() : place_.ranks; }
std::size_t Processes::ranks_per_host() const { return environment_ ? environment_->ranks_per_host : 0; }
bool Processes::spare_processor() const { return environment_ && environment_->spare_processor; }
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
