// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "block_int8_checks.hpp"
#include "serial_kernels.hpp"

namespace block_int8_test {

TEST_CASE("CUB's block int8 passes, run by a loop, give the host's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_block_int8(machine);
}

}  // namespace block_int8_test
