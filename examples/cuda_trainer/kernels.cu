// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

#include "kernels.hpp"
#include "launch.cuh"

// All device code of the trainer after: shardkit's for groups of fp32 with AdamW, and the trainer's own.

namespace sk = shardkit;

template struct sk::nccl::KernelsFor<sk::DefaultPrecision<float>, sk::rules::AdamWRule>;

namespace cuda_trainer {
template void launch(cudaStream_t, std::size_t, const kernels::CopySamples&);
template void launch(cudaStream_t, std::size_t, const kernels::Embed<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::EmbedBackward<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::AddBias<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::BiasBackward<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::BiasGelu<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::GeluBackward<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::AddBiasAndInput<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::SoftmaxCrossEntropy<float>&);
template void launch(cudaStream_t, std::size_t, const kernels::AddLoss<float>&);
}  // namespace cuda_trainer
