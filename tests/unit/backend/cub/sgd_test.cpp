// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "serial_kernels.hpp"
#include "sgd_checks.hpp"

namespace sgd_test {

TEST_CASE("CUB's SGD pass, run by a loop, gives the functor's and the host's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_sgd(machine);
}

}  // namespace sgd_test
