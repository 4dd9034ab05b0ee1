// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <doctest/doctest.h>

#include <shardkit/comm/reduce_op.hpp>

namespace reduce_op_test {

TEST_CASE("ReduceOp: names") {
    CHECK(std::string(name(shardkit::ReduceOp::sum)) == "sum");
    CHECK(std::string(name(shardkit::ReduceOp::max)) == "max");
    CHECK(std::string(name(shardkit::ReduceOp::min)) == "min");
}

}  // namespace reduce_op_test
