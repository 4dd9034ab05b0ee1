// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "elementwise_checks.hpp"
#include "serial_kernels.hpp"

namespace elementwise_test {

TEST_CASE("CUB's element-wise passes, run by a loop, give the host's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_elementwise(machine);
}

}  // namespace elementwise_test
