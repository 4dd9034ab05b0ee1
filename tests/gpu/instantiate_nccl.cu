// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/launches.cuh>

// The sums over ranks of the NCCL engine.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::engine::Reduce;

#define INTO(Out) Reduce<double, Out>, Reduce<float, Out>, Reduce<bf16, Out>, Reduce<fp16, Out>

template struct shardkit::gpu::KernelLaunches<INTO(double), INTO(float), INTO(bf16), INTO(fp16)>;
