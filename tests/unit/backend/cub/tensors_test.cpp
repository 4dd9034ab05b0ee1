// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "serial_kernels.hpp"
#include "tensors_checks.hpp"

namespace tensors_test {

TEST_CASE("CUB's pack and unpack passes, run by a loop") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_pack(machine);
}

}  // namespace tensors_test
