// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/comm/stream.hpp>

#include "unit/backend/cub/stored_states_checks.hpp"
#include "unit/backend/host/enqueued_kernels.hpp"

namespace native_update_test {

namespace {

struct InlineKernels : shardkit::test::EnqueuedKernels<shardkit::Stream> {
    using Stream = shardkit::Stream;
};

}  // namespace

TEST_CASE("host: updates of stored states give the functor's bits in the registers of a build for this processor") {
    shardkit::test::HostMachine<InlineKernels> machine;
    shardkit::test::check_stored_states(machine);
}

}  // namespace native_update_test
