// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

// What shardkit launches for groups of fp32 with AdamW.

template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule>;
