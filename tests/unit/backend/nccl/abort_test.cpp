// SPDX-License-Identifier: Apache-2.0
// Failures in which ncclCommAbort would wait for ever if it were called in the way of the error: communicators that a
// CUDA graph holds, and such whose kernels sit behind a hung one of another communicator.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/split.hpp>

#include "captured_step.hpp"
#include "gpu_ranks.hpp"
#include "step_trainer.hpp"
#include "test_size.hpp"

namespace abort_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;
using rank_checks::Outcome;
using step_trainer::CapturedStep;

/// A test that hangs ends after this long, and the stand-in says so.
constexpr std::chrono::seconds patience(rank_checks::sanitized ? 40 : 8);

void restart(int nccl_version = NCCL_VERSION_CODE) {
    gpu_ranks::restart();
    standin::set_patience(patience);
    standin::set_nccl_version(nccl_version);
}

void add_over(const Comm& comm, std::span<float> values, const shardkit::Stream& stream) {
    all_reduce_in_place(comm, ReduceOp::sum, values, stream);
}

/// Every rank that goes on ends soon after the impatient World's timeout, with an error; none hangs.
template <class F>
void check_ends(std::size_t ranks, std::size_t gone, const F& f) {
    std::vector<Outcome> outcomes;
    const auto duration = rank_checks::duration_of([&] { outcomes = gpu_ranks::each_in_a_thread(ranks, f); });
    CHECK(duration < patience);
    CHECK(standin::hangs() == 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        CAPTURE(outcomes[rank].text);
        CHECK(outcomes[rank].kind == (rank == gone ? Kind::none : Kind::comm));
    }
}

/// Two steps, the second one captured and launched where `graph` says so.
void train(nccl::World& world, const DynamicPolicy& policy, bool graph) {
    using Mesh = DeviceMesh<dynamic, dynamic, dynamic>;
    const Mesh mesh(world.state().world_group().size, 1, 1);
    std::optional<CapturedStep> captured;
    MeshRank<Mesh> rank(mesh, Comm(world), {}, world.streams());
    step_trainer::Trainer<float, decltype(rank)> trainer(rank, policy, {.microbatches = 1});
    trainer.step();
    if (graph) {
        captured.emplace(world.streams(), [&] { trainer.step(); });
        captured->launch();
    } else {
        trainer.step();
    }
    static_cast<void>(trainer.outcome());
    captured.reset();
    world.finish();
}

/// Rank 1 is gone at each of its calls of NCCL, one after the other: the others end with an error, in time, unless it
/// had made all the calls that they wait for. How many calls there were. On a busy machine a rank that lives may come
/// later than the timeout: then once more, with a longer one.
std::size_t check_every_call(std::size_t ranks, const DynamicPolicy& policy, bool graph, std::size_t stride) {
    std::chrono::milliseconds timeout(rank_checks::sanitized ? 300 : 60);
    for (std::size_t call = 0;;) {
        CAPTURE(call);
        restart();
        nccl::Options options = gpu_ranks::impatient();
        options.timeout = timeout;
        standin::kill_device_at(1, call);
        const nccl::UniqueId id = nccl::UniqueId::create();
        std::vector<char> through(ranks);
        const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
            nccl::World world(id, ranks, rank, options);
            train(world, policy, graph);
            through[rank] = 1;
        });
        CHECK(standin::hangs() == 0);
        if (standin::lives(1)) {
            if (std::ranges::count(through, 1) == static_cast<std::ptrdiff_t>(ranks)) { return call; }
            timeout *= 2;
            REQUIRE(timeout < patience);
            continue;
        }
        CHECK(outcomes[1].kind == Kind::comm);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            CAPTURE(outcomes[rank].text);
            CHECK((outcomes[rank].kind == Kind::comm || through[rank] == 1));
        }
        call += stride;
    }
}

/// Waits for the threads in which NCCL is still aborting something.
void await_aborts() {
    while (standin::blocked() > 0) { std::this_thread::yield(); }
}

/// Lives as long as a test's scope, longer than the World: the graph that a user destroys last.
using LateGraphs = std::vector<std::optional<CapturedStep>>;

}  // namespace

TEST_CASE("nccl: a rank that dies while a CUDA graph holds the communicators ends the others") {
    for (const int version : {21800, NCCL_VERSION_CODE}) {
        restart(version);
        const nccl::UniqueId id = nccl::UniqueId::create();
        check_ends(2, 1, [&](std::size_t rank) {
            nccl::World world(id, 2, rank, gpu_ranks::impatient());
            const Comm comm(world);
            auto values = world.communicator().buffer<float>(100);
            const auto streams = world.streams();
            const CapturedStep step(streams, [&] { add_over(comm, values.span(), streams.communication); });
            step.launch();
            streams.compute.synchronize();
            if (rank == 1) { return standin::kill_rank(nccl::native(comm)); }
            add_over(comm, values.span(), streams.communication);
            streams.communication.synchronize();
        });
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: a graph that outlives its failed World keeps memory and streams, and nothing waits for it") {
    if (rank_checks::sanitized) { return; }  // what is left behind would be reported as a leak
    restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    LateGraphs graphs(2);
    check_ends(2, 1, [&](std::size_t rank) {
        nccl::World world(id, 2, rank, gpu_ranks::impatient());
        const Comm comm(world);
        auto values = world.communicator().buffer<float>(100);
        const auto streams = world.streams();
        graphs[rank].emplace(streams, [&] { add_over(comm, values.span(), streams.communication); });
        if (rank == 1) {
            graphs[rank].reset();
            return standin::kill_rank(nccl::native(comm));
        }
        add_over(comm, values.span(), streams.communication);
        streams.communication.synchronize();
    });
    CHECK(standin::live().communicators == 0);
    CHECK(standin::live().streams > 0);
    CHECK(standin::blocked() == 1);
    graphs.clear();
    await_aborts();
    CHECK(standin::hangs() == 0);
}

TEST_CASE("nccl: a World's end waits at most 30 seconds for aborts that a graph holds, however long its timeout is") {
    if (rank_checks::sanitized || test_size::reduced()) { return; }
    restart();
    standin::set_patience(std::chrono::minutes(3));
    const nccl::UniqueId id = nccl::UniqueId::create();
    LateGraphs graphs(2);
    nccl::Options options = gpu_ranks::impatient();
    options.timeout = std::chrono::minutes(2);
    std::vector<Outcome> outcomes;
    const auto duration = rank_checks::duration_of([&] {
        outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
            nccl::World world(id, 2, rank, options);
            const Comm comm(world);
            auto values = world.communicator().buffer<float>(100);
            const auto streams = world.streams();
            graphs[rank].emplace(streams, [&] { add_over(comm, values.span(), streams.communication); });
            if (rank == 1) {
                graphs[rank].reset();
                return standin::kill_rank(nccl::native(comm));
            }
            world.abort();
            throw CommError("test", "this rank", "gives up", SourceLocation::current());
        });
    });
    CHECK(duration < std::chrono::seconds(60));
    CHECK(standin::live().streams > 0);
    graphs.clear();
    await_aborts();
}

TEST_CASE("nccl: communicators whose kernels sit behind each other's hung one are aborted, whichever came first") {
    for (const int version : {21800, NCCL_VERSION_CODE}) {
        for (const bool world_first : {true, false}) {
            CAPTURE(version);
            CAPTURE(world_first);
            restart(version);
            const nccl::UniqueId id = nccl::UniqueId::create();
            check_ends(2, 1, [&](std::size_t rank) {
                nccl::World world(id, 2, rank, gpu_ranks::impatient());
                const Comm comm(world);
                const Comm other = split(comm, 0, rank, "other");
                auto values = world.communicator().buffer<float>(100);
                const shardkit::gpu::TimelineRef stream(world.streams().communication);
                if (rank == 1) {
                    standin::kill_rank(nccl::native(comm));
                    return standin::kill_rank(nccl::native(other));
                }
                add_over(world_first ? comm : other, values.span(), stream);
                add_over(world_first ? other : comm, values.span(), stream);
                stream.synchronize();
            });
            CHECK(standin::live() == standin::Live{});
        }
    }
}

TEST_CASE(
    "nccl: a communicator made out of a borrowed one ends although its work sits behind the user's hung kernel") {
    if (rank_checks::sanitized) { return; }  // what is left behind would be reported as a leak
    restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    std::vector<ncclComm_t> users(2);
    check_ends(2, 1, [&](std::size_t rank) {
        REQUIRE(ncclCommInitRank(&users[rank], 2, nccl::native(id), static_cast<int>(rank)) == ncclSuccess);
        nccl::World world(nccl::Borrow{users[rank]}, gpu_ranks::impatient());
        const Comm comm(world);
        const Comm child = split(comm, 0, rank, "child");
        auto values = world.communicator().buffer<float>(100);
        const shardkit::gpu::TimelineRef stream(world.streams().communication);
        if (rank == 1) { return standin::kill_rank(users[1]); }
        add_over(comm, values.span(), stream);
        add_over(child, values.span(), stream);
        stream.synchronize();
    });
    CHECK(standin::blocked() == 1);  // until the user ends what hangs
    CHECK(ncclCommAbort(users[0]) == ncclSuccess);
    await_aborts();
    CHECK(ncclCommAbort(users[1]) == ncclSuccess);
    CHECK(standin::hangs() == 0);
}

TEST_CASE("nccl: a rank that is gone at any of its calls ends the others, on every policy, plain and in graphs") {
    if (rank_checks::sanitized && test_size::reduced()) { return; }  // hundreds of runs that wait for a timeout
    const std::size_t stride = test_size::reduced() ? 5 : 1;
    CHECK(check_every_call(2, DynamicPolicy(FullShard{}), false, stride) > 30);
    for (const DynamicPolicy& policy : {DynamicPolicy(NoShard{}), DynamicPolicy(ShardOptimizer{}),
                                        DynamicPolicy(ShardGradOp{}), DynamicPolicy(FullShard{})}) {
        CAPTURE(policy.name());
        CHECK(check_every_call(2, policy, true, 4 * stride) >= 20);
    }
    CHECK(check_every_call(4, DynamicPolicy(HybridShard<2>{}), true, 4 * stride) >= 20);
}

}  // namespace abort_test
