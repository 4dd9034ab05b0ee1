// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "lion_checks.hpp"
#include "serial_kernels.hpp"

namespace lion_test {

TEST_CASE("CUB's Lion pass, run by a loop, gives the functor's and the host's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_lion(machine);
}

}  // namespace lion_test
