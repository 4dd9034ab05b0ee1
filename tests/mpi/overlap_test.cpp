// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "shared_count.hpp"
#include "unit/backend/verb_suite.hpp"
#include "unit/thrown_message.hpp"
#include "with_world.hpp"

namespace overlap_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;
using Comm = shardkit::Communicator;

}  // namespace

TEST_CASE("mpi: on the communication stream a collective runs while the rank goes on") {
    SharedCount returned;
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true}));
    const Comm comm(world);
    const auto stream = world.communication_stream();
    std::vector<float> shard(1000, static_cast<float>(comm.rank()));
    std::vector<float> full(1000 * comm.size());
    // Rank 0 comes only when the call has returned on all others: were it to wait for rank 0, nobody would go on.
    if (comm.rank() == 0) { CHECK(returned.reaches(static_cast<int>(comm.size()) - 1, std::chrono::seconds(30))); }
    all_gather(comm, std::span<const float>(shard), std::span<float>(full), stream);
    if (comm.rank() != 0) { returned.add(); }
    const auto gathered = stream.record();
    decltype(stream) inline_stream;
    inline_stream.wait(gathered);
    for (std::size_t i = 0; i < full.size(); ++i) { CHECK(full[i] == static_cast<float>(i / 1000)); }
    world.finish();
}

TEST_CASE("mpi: verbs of an inline stream come behind those of all others, of which more wait than a ring holds") {
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true}));
    const Comm comm(world);
    constexpr std::size_t calls = 3 * host::detail::CommandQueue::slots;
    std::vector<double> values(calls, 1.0);
    for (std::size_t i = 0; i < calls; ++i) {
        all_reduce_in_place(comm, ReduceOp::sum, std::span<double>(values).subspan(i, 1),
                            i % 2 == 0 ? world.communication_stream() : world.reduction_stream());
        if (i % 100 == 99) {
            double now = 2;
            all_reduce_in_place(comm, ReduceOp::max, std::span<double>(&now, 1), {});
            CHECK(now == 2);
            CHECK(values[i - 1] == static_cast<double>(comm.size()));
            CHECK(values[i] == static_cast<double>(comm.size()));
        }
    }
    world.drain();
    CHECK(values == std::vector<double>(calls, static_cast<double>(comm.size())));
    CHECK(comm.traffic().total(Verb::all_reduce).calls == (comm.size() > 1 ? calls + calls / 100 : 0));
    world.finish();
}

TEST_CASE("mpi: an error on the communication stream is thrown by the next wait, once") {
    if (mpi::Environment::size() == 1) { return; }
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true}));
    const Comm comm(world);
    const auto stream = world.communication_stream();
    std::vector<float> values(12, 1.0F);
    const std::span<float> all(values);
    all_reduce_in_place(comm, ReduceOp::sum, comm.rank() == 0 ? all.first(3) : all, stream);
    CHECK_THROWS_WITH_AS(stream.synchronize(), doctest::Contains("the ranks disagree"), CommError);
    CHECK_NOTHROW(stream.synchronize());
    CHECK_NOTHROW(check_all_reduce<float, float>(comm, 100, 1));
    world.finish();
}

TEST_CASE("mpi: on the communication stream, ranks that call the same for different groups are told which") {
    if (mpi::Environment::size() == 1) { return; }
    static const engine::CallSubject first("'blocks.0' gradients");
    static const engine::CallSubject second("'blocks.1' gradients");
    mpi::World world(MPI_COMM_WORLD, patient({.overlap = true}));
    const Comm comm(world);
    const auto stream = world.communication_stream();
    Guarded<float> out(60, 1);
    const std::vector<float> values(60, 1.0F);
    all_reduce(comm, ReduceOp::sum, std::span<const float>(values), out.span(), stream,
               {SourceLocation::current(), comm.rank() == 0 ? &second : &first});
    const std::string text = thrown_message<CommError>([&] { stream.synchronize(); });
    CAPTURE(text);
    CHECK(has(text, "all_reduce sum of 60 fp32 for 'blocks.0' gradients at "));
    CHECK(has(text, "all_reduce sum of 60 fp32 for 'blocks.1' gradients at "));
    CHECK(out.untouched());
    CHECK_NOTHROW(check_all_reduce<float, float>(comm, 100, 1));
    world.finish();
}

TEST_CASE("mpi: streams that are no stream of the World's are refused") {
    mpi::World world(MPI_COMM_WORLD, patient());
    const Comm comm(world);
    host::detail::CommandQueue queue;
    CHECK_USAGE_ERROR(barrier(comm, Stream(queue)),
                      "mpi: the stream is no stream of this World's; pass a default one, "
                      "World::communication_stream() or World::reduction_stream()");
    world.finish();
}

}  // namespace overlap_test
