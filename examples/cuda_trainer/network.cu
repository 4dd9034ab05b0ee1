// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include "launch.cuh"

// The model's passes and what they launch, compiled once for both trainers.

template class train_gpt::Pass<float, cuda_trainer::Place>;
template void cuda_trainer::launch(cudaStream_t, std::size_t, const CopyTokens&);
