// SPDX-License-Identifier: Apache-2.0
// In place of the engines of hosts, in a build for GPUs that found no OpenBLAS.
#include "../../common/input_error.hpp"
#include "job.hpp"
#include "plan_summary.hpp"

namespace train_gpt {

PlanSummary make_plan(const Options&) {
    throw program::InputError(
        "--engine threads and mpi: this program was built without OpenBLAS; expected one at build time (Debian: "
        "libopenblas-dev), or --engine nccl");
}

// Never: without a plan nothing is trained.
Results train(const Job&) { return {}; }

}  // namespace train_gpt

// Which no engine here asks.
extern "C" char* openblas_get_config() { return nullptr; }
extern "C" char* openblas_get_corename() { return nullptr; }
