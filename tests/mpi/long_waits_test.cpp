// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "unit/backend/rank_checks.hpp"
#include "with_world.hpp"

namespace long_waits_test {

TEST_CASE("mpi: with timeout = milliseconds::max() a rank waits for one that comes late") {
    for (const bool shared_memory : {true, false}) {
        CAPTURE(shared_memory);
        shardkit::mpi::Options options{.shared_memory = shared_memory};
        options.timeout = std::chrono::milliseconds::max();
        shardkit::mpi::World world(MPI_COMM_WORLD, options);
        const shardkit::Communicator comm(world);
        if (comm.rank() == 0) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }
        CHECK_NOTHROW(shardkit::barrier(comm, {}));
        world.finish();
    }
}

TEST_CASE("mpi: in a Deadline ranks wait for one that is later than the timeout") {
    for (const bool shared_memory : {true, false}) {
        CAPTURE(shared_memory);
        shardkit::mpi::Options options{.shared_memory = shared_memory};
        options.timeout = std::chrono::milliseconds(rank_checks::sanitized ? 3000 : 300);
        shardkit::mpi::World world(MPI_COMM_WORLD, options);
        const shardkit::Communicator comm(world);
        const shardkit::DeviceMesh<shardkit::dynamic> mesh(comm.size());
        shardkit::MeshRank<shardkit::DeviceMesh<shardkit::dynamic>> rank{mesh, comm};
        const auto phase = rank.deadline(std::chrono::minutes(1));
        if (comm.rank() == 0) { std::this_thread::sleep_for(2 * options.timeout); }
        CHECK_NOTHROW(shardkit::barrier(comm, {}));
        world.finish();
    }
}

}  // namespace long_waits_test
