// SPDX-License-Identifier: Apache-2.0
#include "kernels.cuh"

// The device code of the model in fp32. That of groups in fp32 with AdamW is in examples/cuda_trainer/kernels.cu.

template struct train_gpt::PassKernels<float>;

namespace train_gpt {

template <class Lists>
struct Launched {
    static void calls() { shardkit::gpu::LaunchLists<typename Lists::OfLibrary, typename Lists::Elements>::calls(); }
};
template struct Launched<OtherLists<shardkit::gpu::KernelLaunches, shardkit::gpu::Launches>>;

}  // namespace train_gpt
