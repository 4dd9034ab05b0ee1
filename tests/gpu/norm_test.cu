// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../unit/backend/cub/norm_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("the norm kernel agrees with the host") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_norm(gpu.machine(), 20, shardkit::test::Fuses::yes);
}
