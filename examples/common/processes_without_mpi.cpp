// SPDX-License-Identifier: Apache-2.0
// In place of processes_mpi.cpp where the build found no MPI.
#include "asks_for_mpi.hpp"
#include "mpi_missing.hpp"
#include "processes.hpp"

namespace program {

struct Processes::Environment {};

Processes::Processes(int count, const char* const* arguments) {
    if (asks_for_mpi(count, arguments)) { throw_mpi_missing(); }
}
Processes::~Processes() = default;

std::size_t Processes::count() const { return 1; }
bool Processes::reports() const { return true; }
std::string Processes::mpi_version() const { return {}; }
Processes::Agreement Processes::agree(int code) const { return {code, code != 0}; }

}  // namespace program
