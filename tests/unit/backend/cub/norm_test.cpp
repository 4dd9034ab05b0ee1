// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "norm_checks.hpp"
#include "serial_kernels.hpp"

namespace norm_test {

TEST_CASE("CUB's norm pass, run by a loop") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_norm(machine, 2, shardkit::test::Fuses::no);
}

}  // namespace norm_test
