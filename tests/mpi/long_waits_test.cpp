// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/comm/barrier.hpp>

#include "with_world.hpp"

namespace long_waits_test {

TEST_CASE("mpi: with timeout = milliseconds::max() a rank waits for one that comes late") {
    for (const bool shared_memory : {true, false}) {
        CAPTURE(shared_memory);
        shardkit::mpi::Options options{.shared_memory = shared_memory};
        options.timeout = std::chrono::milliseconds::max();
        shardkit::mpi::World world(MPI_COMM_WORLD, options);
        const shardkit::mpi::Communicator<> comm(world);
        if (comm.rank() == 0) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }
        CHECK_NOTHROW(shardkit::barrier(comm, {}));
        world.finish();
    }
}

}  // namespace long_waits_test
