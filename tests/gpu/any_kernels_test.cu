// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/backend/cub/launches.cuh>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "../unit/backend/nccl/any_kernels_checks.hpp"
#include "gpu_machine.hpp"

namespace sk = shardkit;
using any_kernels_checks::results_on;

// As for a file that nvcc does not compile.
template struct sk::gpu::KernelLaunches<sk::engine::Fill<float>, sk::engine::Convert<float, sk::bf16>>;

TEST_CASE("AnyKernels: on a GPU's stream, with the host's results") {
    shardkit::test::GpuMachine gpu;
    const auto expected = results_on({});
    CHECK(expected[1] == any_kernels_checks::second_result);
    CHECK(results_on(gpu.stream()) == expected);
    const bool is_known = sk::engine::device_launch<sk::engine::Fill<float>> != nullptr;
    CHECK(is_known);
}
