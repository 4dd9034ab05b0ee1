// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../unit/backend/cub/elementwise_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("the element-wise kernels give the host's bits") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_elementwise(gpu.machine());
}
