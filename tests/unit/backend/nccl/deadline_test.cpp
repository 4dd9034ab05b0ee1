// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/rendezvous.hpp>

namespace sk = shardkit;

namespace deadline_test {

using std::chrono::milliseconds;

TEST_CASE("nccl: a deadline after milliseconds::max() is not over") {
    const sk::nccl::detail::Deadline deadline(milliseconds::max());
    CHECK_FALSE(deadline.over());
    CHECK(deadline.milliseconds(milliseconds(200)) == 200);
}

}  // namespace deadline_test
