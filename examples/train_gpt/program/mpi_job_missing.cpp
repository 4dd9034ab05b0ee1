// SPDX-License-Identifier: Apache-2.0
// In place of mpi_job.cpp and train_mpi_*.cpp where the build found no MPI.
#include <shardkit/core/bf16.hpp>

#include "asks_for_mpi.hpp"
#include "input_error.hpp"
#include "mpi_job.hpp"

namespace train_gpt {

namespace {

[[noreturn]] void throw_missing() {
    throw InputError(
        "--engine mpi: this program was built without MPI; expected one at build time (Debian: libopenmpi-dev "
        "openmpi-bin)");
}

}  // namespace

struct MpiJob::Environment {};

MpiJob::MpiJob(int count, const char* const* arguments) {
    if (asks_for_mpi(count, arguments)) { throw_missing(); }
}
MpiJob::~MpiJob() = default;

std::size_t MpiJob::processes() const { return 1; }
bool MpiJob::reports() const { return true; }
MpiJob::Agreement MpiJob::agree(int code) const { return {code, code != 0}; }

template <class T>
Results train_mpi(const Job&) {
    throw_missing();
}
template Results train_mpi<double>(const Job& job);
template Results train_mpi<float>(const Job& job);
template Results train_mpi<shardkit::bf16>(const Job& job);

shardkit::EngineTraits mpi_traits() { return {}; }

}  // namespace train_gpt
