// SPDX-License-Identifier: Apache-2.0
// Two processes with two lanes of communication each: what the lanes have to wait for, and what not.
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <shardkit/backend/mpi/communicator.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "mpi/interposed.hpp"

namespace {

namespace sk = shardkit;
using Comm = sk::Communicator;

constexpr std::size_t many = 6000;

void require(bool holds, const char* what) {
    if (!holds) { throw std::runtime_error(what); }
}

/// The second rank's gather is under way while its sum with the first rank, which is late to the gather, ends.
void overtake(sk::mpi::World& world) {
    const Comm comm(world);
    auto full = comm.buffer<float>(comm.size() * many);
    std::array<double, 24> sums{};
    sums.fill(1);
    const auto gather = [&] { sk::all_gather_in_place(comm, full.span(), world.communication_stream()); };
    if (comm.rank() != 0) { gather(); }
    sk::all_reduce_in_place(comm, sk::ReduceOp::sum, std::span<double>(sums), world.reduction_stream());
    world.reduction_stream().synchronize();
    for (const double sum : sums) { require(sum == static_cast<double>(comm.size()), "a wrong sum"); }
    if (comm.rank() == 0) { gather(); }
    world.drain();
}

/// Gathers and sums at once, whose MPI calls would meet were they not made in turns.
void both(sk::mpi::World& world) {
    const Comm comm(world);
    constexpr std::size_t rounds = 20;
    auto full = comm.buffer<float>(comm.size() * many);
    std::vector<double> sums(rounds * many, 1);
    mpi_test::interposed::linger(true);
    for (std::size_t i = 0; i < rounds; ++i) {
        sk::all_gather_in_place(comm, full.span(), world.communication_stream());
        sk::all_reduce_in_place(comm, sk::ReduceOp::sum, std::span<double>(sums).subspan(i * many, many),
                                world.reduction_stream());
    }
    world.drain();
    mpi_test::interposed::linger(false);
    for (const double sum : sums) { require(sum == static_cast<double>(comm.size()), "a wrong sum"); }
    require(!mpi_test::interposed::two_at_once(), "two threads were inside MPI at once");
}

/// f() has waited for what the stream was given.
template <class F>
void waits(const sk::Stream& stream, F f) {
    bool done = false;
    stream.submit([&done] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        done = true;
    });
    f();
    require(done, "a lane was not waited for");
}

}  // namespace

int main() {
    const sk::mpi::Environment mpi;
    std::array<sk::mpi::Options, 3> ways{};
    ways[1].shared_memory = false;
    ways[2].ranks_per_host = 1;
    for (sk::mpi::Options& options : ways) {
        options.overlap = true;
        options.timeout = std::chrono::seconds(5);
        sk::mpi::World world(MPI_COMM_WORLD, options);
        overtake(world);
        both(world);
        for (const auto& stream : {world.communication_stream(), world.reduction_stream()}) {
            waits(stream, [&] { sk::barrier(Comm(world), {}); });
            waits(stream, [&] { world.drain(); });
        }
        world.finish();
    }
}
