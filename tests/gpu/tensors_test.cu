// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../unit/backend/cub/tensors_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("the pack and unpack kernels") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_pack(gpu.machine());
}
