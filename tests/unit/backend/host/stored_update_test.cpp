// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/comm/stream.hpp>

#include "../cub/stored_states_checks.hpp"
#include "enqueued_kernels.hpp"

namespace stored_update_test {

namespace {

struct InlineKernels : shardkit::test::EnqueuedKernels<shardkit::Stream> {
    using Stream = shardkit::Stream;
};

}  // namespace

TEST_CASE(
    "host: updates of states in bf16 and in blocks of 8 bits give the functor's bits, on vectors and at the ends") {
    shardkit::test::HostMachine<InlineKernels> machine;
    shardkit::test::check_stored_states(machine);
}

}  // namespace stored_update_test
