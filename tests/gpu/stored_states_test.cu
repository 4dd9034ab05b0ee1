// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/backend/cub/kernels.cuh>

#include "../unit/backend/cub/coded_update_checks.hpp"
#include "../unit/backend/cub/stored_states_checks.hpp"
#include "gpu_machine.hpp"

TEST_CASE("updates of states in bf16 and in blocks of 8 bits, and of split masters, give the host's bits") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_stored_states(gpu.machine());
}

TEST_CASE("updates that begin codes leave what the masters say") {
    shardkit::test::GpuMachine gpu;
    shardkit::test::check_coded_updates(gpu.machine());
}
