// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/backend/thrust/device_iterators.cuh>
#include <shardkit/backend/thrust/to_span.cuh>
#include <shardkit/core/codes.hpp>
#include <shardkit/optim/adamw.hpp>

// What depends on the toolkit besides what instantiate_kernels_for.cu makes: preloading, and Thrust's iterators.

namespace sk = shardkit;

namespace shardkit::test {

void preload() {
    sk::nccl::KernelsFor<sk::DefaultPrecision<float>, sk::rules::AdamWRule>::preload();
    sk::nccl::KernelsFor<sk::Precision<sk::block_int8, sk::bf16>, sk::rules::AdamWRule>::preload();
}

}  // namespace shardkit::test
