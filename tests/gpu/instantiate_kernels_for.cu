// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels_for.cuh>
#include <shardkit/sharded/precision.hpp>

// Whole sets of kernels, as a split trainer asks for them; examples/cuda_trainer links with the one for fp32 and
// AdamW.

namespace sk = shardkit;

template struct sk::gpu::KernelsFor<sk::DefaultPrecision<sk::bf16>, sk::SgdRule>;
template struct sk::gpu::KernelsFor<sk::Precision<sk::fp16, sk::fp16, sk::fp16, double>, sk::AdamWRule>;
