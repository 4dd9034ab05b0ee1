// SPDX-License-Identifier: Apache-2.0
// In place of processes_mpi.cpp where the build found no MPI.
#include "asks_for_engine.hpp"
#include "mpi_missing.hpp"
#include "processes.hpp"

namespace program {

struct Processes::Environment {};

Processes::Processes(int count, const char* const* arguments)
    : place_(asks_for_engine("nccl", count, arguments) ? Place::from_environment() : Place{}) {
    if (asks_for_engine("mpi", count, arguments)) { throw_mpi_missing(); }
}
Processes::~Processes() = default;

std::size_t Processes::count() const { return place_.ranks; }
std::size_t Processes::ranks_per_host() const { return 0; }
bool Processes::spare_processor() const { return false; }
bool Processes::reports() const { return place_.rank == 0; }
std::string Processes::mpi_version() const { return {}; }
Processes::Agreement Processes::agree(int code) const { return {code, code != 0 && place_.speaks()}; }

}  // namespace program
