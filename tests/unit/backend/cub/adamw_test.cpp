// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "adamw_checks.hpp"
#include "serial_kernels.hpp"

namespace adamw_test {

TEST_CASE("CUB's AdamW pass, run by a loop, gives the functor's and the host's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_adamw(machine);
}

}  // namespace adamw_test
