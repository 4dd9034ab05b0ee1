// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../unit/backend/cub/block_int8_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("the block int8 kernels give the host's bits") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_block_int8(gpu.machine());
}
