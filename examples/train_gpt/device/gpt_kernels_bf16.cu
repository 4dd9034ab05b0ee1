// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/core/bf16.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

#include "kernels.cuh"

// The device code of the model in bf16, and of its groups.

template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<shardkit::bf16>, shardkit::rules::AdamWRule>;
template struct train_gpt::PassKernels<shardkit::bf16>;
