// SPDX-License-Identifier: Apache-2.0
// In place of device/nccl.cu where the build has no nvcc.
#include "../../common/input_error.hpp"
#include "job.hpp"
#include "plan_summary.hpp"

namespace train_gpt {

PlanSummary plan_on_nccl(const Options&) {
    throw program::InputError(
        "--engine nccl: this program was built without CUDA; expected build/cuda_trainer/train_gpt, which "
        "examples/cuda_trainer/build.sh builds");
}

Results train_on_nccl(const Job&) { return {}; }  // never: without a plan nothing is trained

}  // namespace train_gpt
