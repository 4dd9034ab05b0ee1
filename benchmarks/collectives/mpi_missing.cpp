// SPDX-License-Identifier: Apache-2.0
// In place of processes_mpi.cpp and run_on_mpi.cpp where the build found no MPI.
#include "../common/input_error.hpp"
#include "asks_for_mpi.hpp"
#include "engines.hpp"
#include "processes.hpp"

namespace benchmarks {

namespace {

[[noreturn]] void throw_missing() {
    throw InputError(
        "--engine mpi: this program was built without MPI; expected one at build time (Debian: libopenmpi-dev "
        "openmpi-bin)");
}

}  // namespace

struct Processes::Environment {};

Processes::Processes(int count, const char* const* arguments) {
    if (asks_for_mpi(count, arguments)) { throw_missing(); }
}
Processes::~Processes() = default;

std::size_t Processes::count() const { return 1; }
bool Processes::reports() const { return true; }
Processes::Agreement Processes::agree(int code) const { return {code, code != 0}; }

void run_on_mpi(const Options&, const RowSink&) { throw_missing(); }
std::string mpi_version() { return {}; }

}  // namespace benchmarks
