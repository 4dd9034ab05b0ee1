// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../unit/backend/cub/lion_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("the Lion kernel gives the functor's and the host's bits") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_lion(gpu.machine());
}
