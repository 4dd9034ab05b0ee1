// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "matrix_checks.hpp"
#include "serial_kernels.hpp"

namespace matrix_test {

TEST_CASE_TEMPLATE("Muon's works by index add the norm in the host's order and move what two loops move", A, float,
                   double) {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_matrix_works<A>(machine);
}

}  // namespace matrix_test
