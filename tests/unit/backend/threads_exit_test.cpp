// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "exit_status.hpp"
#include "rank_checks.hpp"

namespace threads_exit_test {

TEST_CASE("threads: exit() in a rank ends the process with its status, whatever the others wait for") {
    if (rank_checks::sanitized) { return; }  // whose own end looks at what the others hold
    using namespace shardkit;
    CHECK(exit_status_of([] {
              threads::run(DeviceMesh<3>{}, [](auto& rank) {
                  if (rank.rank() == 1) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(20));
                      std::exit(7);
                  }
                  barrier(rank.world(), rank.communication_stream());
              });
          }) == 7);
}

}  // namespace threads_exit_test
