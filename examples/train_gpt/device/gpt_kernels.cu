// SPDX-License-Identifier: Apache-2.0
#include "kernels.cuh"

// The device code of the model in fp32. That of groups in fp32 with AdamW is in examples/cuda_trainer/kernels.cu.

template struct train_gpt::PassKernels<float>;
template struct shardkit::gpu::KernelLaunches<shardkit::engine::Convert<double, double>>;
template struct shardkit::gpu::Launches<train_gpt::Convert<train_gpt::Token, train_gpt::Token>>;
