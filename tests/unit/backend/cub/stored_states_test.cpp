// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "serial_kernels.hpp"
#include "stored_states_checks.hpp"

namespace stored_states_test {

TEST_CASE("CUB's update of states in bf16 and in blocks of 8 bits, run by a loop, gives the functor's bits") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_stored_states(machine);
}

}  // namespace stored_states_test
