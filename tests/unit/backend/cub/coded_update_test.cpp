// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/comm/stream.hpp>

#include "../host/enqueued_kernels.hpp"
#include "coded_update_checks.hpp"
#include "serial_kernels.hpp"

namespace coded_update_test {

namespace {

struct HostKernels : shardkit::test::EnqueuedKernels<shardkit::Stream> {
    using Stream = shardkit::Stream;
};

}  // namespace

TEST_CASE("CUB's updates that begin codes, run by a loop, leave what the masters say") {
    shardkit::test::SerialMachine machine;
    shardkit::test::check_coded_updates(machine);
}

TEST_CASE("the host's updates that begin codes leave what the masters say") {
    shardkit::test::HostMachine<HostKernels> machine;
    shardkit::test::check_coded_updates(machine);
}

}  // namespace coded_update_test
