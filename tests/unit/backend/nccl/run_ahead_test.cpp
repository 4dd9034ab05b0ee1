// SPDX-License-Identifier: Apache-2.0
// Loops in which the host waits for nothing: CUDA takes about a thousand launches and then blocks whoever gives it
// more, so a rank must notice before that its peers are gone.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "../../../../examples/who_is_missing/read_record.hpp"
#include "captured_step.hpp"
#include "gpu_ranks.hpp"
#include "temporary_folder.hpp"

namespace run_ahead_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;

constexpr std::size_t ranks = 2;

/// Rank 0 goes on for ever after rank 1 has died, and ends with an error about its timeout before it blocks in CUDA.
template <class Step>
void check_loop_ends(std::size_t launch_queue, const nccl::Options& options, const Step& step) {
    gpu_ranks::restart();
    standin::set_launch_queue(launch_queue);
    standin::set_patience(std::chrono::seconds(rank_checks::sanitized ? 40 : 8));
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
        nccl::World world(id, ranks, rank, options);
        const Comm comm(world);
        step(world, comm, rank == 1 ? 3 : 100'000);
        if (rank == 1) { standin::kill_rank(nccl::native(comm)); }
    });
    CHECK(standin::hangs() == 0);
    CAPTURE(outcomes[0].text);
    CHECK(outcomes[0].kind == Kind::comm);
    CHECK(contains(outcomes[0].text, gpu_ranks::after_short_timeout));
}

/// `kernels` pieces of work, then a sum.
void steps(nccl::World& world, const Comm& comm, std::size_t count, std::size_t kernels) {
    auto values = world.communicator().buffer<float>(100);
    const auto streams = world.streams();
    for (std::size_t step = 0; step < count; ++step) {
        for (std::size_t i = 0; i < kernels; ++i) {
            gpu::detail::check(cudaMemsetAsync(values.data(), 0, 4, streams.compute.native()), "cudaMemsetAsync");
        }
        streams.communication.wait(streams.compute.record());
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication);
        streams.compute.wait(streams.communication.record());
    }
}

}  // namespace

TEST_CASE("nccl: a loop that never waits notices that a peer is gone before the launch queue is full") {
    check_loop_ends(1000, gpu_ranks::impatient(),
                    [](nccl::World& world, const Comm& comm, std::size_t count) { steps(world, comm, count, 100); });
    nccl::Options one = gpu_ranks::impatient();
    one.verbs_ahead = 1;
    check_loop_ends(1000, one,
                    [](nccl::World& world, const Comm& comm, std::size_t count) { steps(world, comm, count, 900); });
}

TEST_CASE(
    "nccl: so does one with more launches between its verbs than CUDA takes, and one that makes no verb any more") {
    check_loop_ends(1000, gpu_ranks::impatient(),
                    [](nccl::World& world, const Comm& comm, std::size_t count) { steps(world, comm, count, 1500); });
    check_loop_ends(100, gpu_ranks::impatient(), [](nccl::World& world, const Comm& comm, std::size_t count) {
        const auto streams = world.streams();
        auto values = world.communicator().buffer<float>(100);
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication);
        if (comm.rank() == 1) { return streams.communication.synchronize(); }
        streams.communication.synchronize();
        while (standin::all_live(nccl::native(comm))) { std::this_thread::yield(); }
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication);
        streams.compute.wait(streams.communication.record());
        for (std::size_t i = 0; i < count / 10; ++i) {
            gpu::detail::check(cudaMemsetAsync(values.data(), 0, 4, streams.compute.native()), "cudaMemsetAsync");
        }
        CHECK(nccl::native(comm) == nullptr);
        barrier(comm, streams.compute);
    });
}

TEST_CASE("nccl: a host that is away for long is not taken for one that is blocked, if its verbs are over") {
    gpu_ranks::restart(standin::Pace::eager);
    const auto outcomes =
        gpu_ranks::with_world(ranks, gpu_ranks::impatient(), [](const Comm& comm, nccl::World& world) {
            auto values = world.communicator().buffer<float>(100);
            const shardkit::gpu::TimelineRef stream(world.streams().communication);
            for (int i = 0; i < 2; ++i) {
                all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
                std::this_thread::sleep_for(3 * gpu_ranks::short_timeout);
            }
            barrier(comm, stream);
            stream.synchronize();
        });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: a wait does not take work that was ended for work that is done, whichever stream is waited for") {
    for (const bool away : {true, false}) {
        CAPTURE(away);
        gpu_ranks::restart();
        const auto outcomes =
            gpu_ranks::with_world(ranks, gpu_ranks::impatient(), [&](const Comm& comm, nccl::World& world) {
                auto values = world.communicator().buffer<float>(100);
                const auto streams = world.streams();
                all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication);
                streams.communication.synchronize();
                if (comm.rank() == 1) { throw rank_checks::Planted("gone"); }
                all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication);
                if (away) {
                    while (nccl::native(comm) != nullptr) {
                        std::this_thread::yield();
                    }  // until the watch has ended it
                } else {
                    CHECK_THROWS_AS(streams.communication.synchronize(), CommError);
                }
                while (cudaStreamQuery(streams.communication.native()) != cudaSuccess) { std::this_thread::yield(); }
                CHECK_THROWS_AS(streams.compute.synchronize(), CommError);
                CHECK_THROWS_AS(streams.communication.synchronize(), CommError);
                barrier(comm, streams.communication);
            });
        CHECK(outcomes[0].kind == Kind::comm);
        CAPTURE(outcomes[0].text);
        CHECK(rank_checks::contains(outcomes[0].text, "all_reduce"));
    }
}

TEST_CASE("nccl: nor while NCCL is still ending it, and a flight record calls it not done afterwards") {
    const temporary_folder::Folder folder;
    for (const bool survivable : {true, false}) {
        CAPTURE(survivable);
        gpu_ranks::restart(standin::Pace::eager);
        standin::return_late("ncclCommRevoke", 2 * gpu_ranks::short_timeout);
        nccl::Options options = gpu_ranks::impatient();
        options.survivable = survivable;
        options.record = folder.file("run");
        const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
            auto values = world.communicator().buffer<float>(100);
            const shardkit::gpu::TimelineRef stream(world.streams().communication);
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
            stream.synchronize();
            if (comm.rank() == 1) {
                standin::kill_rank(nccl::native(comm));
                throw rank_checks::Planted("gone");
            }
            while (standin::all_live(nccl::native(comm))) { std::this_thread::yield(); }
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
            // The host is away, as one that is blocked in a launch, until the sum looks done.
            while (cudaStreamQuery(stream.native()) != cudaSuccess) { std::this_thread::yield(); }
            CHECK_THROWS_AS(stream.synchronize(), CommError);
            const std::string file = recorder::record_file(options.record, 0);
            std::filesystem::remove(file);
            recorder::request_records();
            while (!std::filesystem::exists(file)) { std::this_thread::yield(); }
            const auto calls = flight_records::read_record(file).calls;
            REQUIRE(calls.size() >= 2);
            CHECK(calls.end()[-2].done != 0);
            CHECK(calls.back().done == 0);
            stream.synchronize();
        });
        CAPTURE(outcomes[0].text);
        CHECK(outcomes[0].kind == Kind::comm);
        CHECK(contains(outcomes[0].text, gpu_ranks::after_short_timeout));
    }
}

TEST_CASE("nccl: neither a waiting rank nor the watch spoils what another thread captures") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.timeout = std::chrono::seconds(rank_checks::sanitized ? 40 : 8);
    const gpu::Stream captured;
    std::atomic<int> given = 0;
    cudaError_t ended = cudaErrorUnknown;
    cudaGraph_t graph = nullptr;
    std::thread captures([&] {
        while (given < 2) { std::this_thread::yield(); }
        gpu::detail::check(cudaStreamBeginCapture(captured.ref().native(), cudaStreamCaptureModeGlobal), "begin");
        std::this_thread::sleep_for(2 * options.timeout / 8);  // the watch looks eight times in a timeout
        ended = cudaStreamEndCapture(captured.ref().native(), &graph);
        given = 3;
    });
    const nccl::UniqueId id = nccl::UniqueId::create();
    const auto outcomes = gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
        nccl::World world(id, ranks, rank, options);
        const Comm comm(world);
        auto values = world.communicator().buffer<float>(100);
        const shardkit::gpu::TimelineRef stream(world.streams().communication);
        // One rank waits for the other one's verb, that one stays away with a verb under way.
        if (rank == 1) { barrier(comm, world.streams().compute); }
        ++given;
        if (rank == 1) {
            while (given < 3) { std::this_thread::yield(); }
        } else {
            barrier(comm, world.streams().compute);
        }
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
        stream.synchronize();
    });
    captures.join();
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(ended == cudaSuccess);
    if (graph != nullptr) { CHECK(cudaGraphDestroy(graph) == cudaSuccess); }
    static_cast<void>(cudaGetLastError());
}

TEST_CASE("nccl: so does one sum or maximum of thousands of pieces, within the call") {
    nccl::Options options = gpu_ranks::impatient();
    options.staging_bytes = 1;  // the least that there is: pieces of 1 KiB
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        CAPTURE(name(op));
        bool returned = false;
        check_loop_ends(1000, options, [&](nccl::World& world, const Comm& comm, std::size_t count) {
            auto values = world.communicator().buffer<bf16>(10 * count);
            const shardkit::gpu::TimelineRef stream(world.streams().communication);
            all_reduce_in_place(comm, op, values.span().first(30), stream);
            stream.synchronize();
            if (comm.rank() == 1) { return; }
            all_reduce_in_place(comm, op, values.span(), stream);
            returned = true;
        });
        CHECK_FALSE(returned);
    }
}

TEST_CASE("nccl: so does a loop that launches graphs, by keep_pace") {
    check_loop_ends(100, gpu_ranks::impatient(), [](nccl::World& world, const Comm& comm, std::size_t count) {
        auto values = world.communicator().buffer<float>(100);
        const auto streams = world.streams();
        const step_trainer::CapturedStep step(
            streams, [&] { all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.communication); });
        for (std::size_t i = 0; i < count; ++i) {
            step.launch();
            world.keep_pace(streams.compute);
        }
        streams.compute.synchronize();
    });
}

TEST_CASE(
    "nccl: the host is ahead of the GPU by no more verbs than it may be, and waits for none of them in a capture") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.verbs_ahead = 3;
    nccl::World world(nccl::UniqueId::create(), 1, 0, options);
    const Comm comm(world);
    const shardkit::gpu::TimelineRef stream(world.streams().communication);
    const auto verb = [&] { barrier(comm, stream); };
    standin::reset_calls();
    for (int i = 0; i < 3; ++i) { verb(); }
    CHECK(standin::calls("cudaEventQuery") == 0);
    verb();
    CHECK(standin::calls("cudaEventQuery") == 1);
    standin::reset_calls();
    const step_trainer::CapturedStep step(world.streams(), [&] {
        for (int i = 0; i < 10; ++i) { verb(); }
    });
    CHECK(standin::calls("cudaEventQuery") == 0);
    step.launch();
    verb();
    stream.synchronize();
    options.verbs_ahead = 0;
    CHECK_THROWS_AS(nccl::World(nccl::UniqueId::create(), 1, 0, options), std::invalid_argument);
}

TEST_CASE("nccl: a GPU that gets on is waited for as long as it does, one that stands still until the timeout") {
    constexpr std::size_t pieces = 8;
    for (const bool gets_on : {true, false}) {
        CAPTURE(gets_on);
        gpu_ranks::restart();
        nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::impatient());
        const auto streams = world.streams();
        const auto& compute = streams.compute;
        const auto& communication = streams.communication;
        std::vector<gpu::Stream> held(pieces);
        for (const gpu::Stream& each : held) {
            const gpu::StreamRef stream = each.ref();
            const gpu::Event event;
            standin::hold(stream.native());
            stream.record(event);
            gpu::StreamRef(compute.native()).wait(event);
            communication.wait(compute.record());
        }
        std::thread releases([&] {
            for (const gpu::Stream& each : held) {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                if (gets_on) { standin::release(each.ref().native()); }
            }
        });
        if (gets_on) {
            CHECK_NOTHROW(communication.synchronize());
        } else {
            CHECK_THROWS_AS(communication.synchronize(), CommError);
        }
        releases.join();
        for (const gpu::Stream& each : held) { standin::release(each.ref().native()); }
    }
}

TEST_CASE("nccl: a verb waits for the one before it, and not for what was given to that one's stream since") {
    gpu_ranks::restart();
    // The World's destructor still runs what was given to its streams.
    int before = 0;
    int since = 0;
    nccl::World world(nccl::UniqueId::create(), 1, 0, gpu_ranks::patient());
    const Comm comm(world);
    const auto streams = world.streams();
    const auto& compute = streams.compute;
    const auto& communication = streams.communication;
    const auto count = [](void* value) { ++*static_cast<int*>(value); };
    gpu::detail::check(cudaLaunchHostFunc(compute.native(), count, &before), "cudaLaunchHostFunc");
    barrier(comm, compute);
    gpu::detail::check(cudaLaunchHostFunc(compute.native(), count, &since), "cudaLaunchHostFunc");
    barrier(comm, communication);
    communication.synchronize();
    CHECK(before == 1);
    CHECK(since == 0);
}

}  // namespace run_ahead_test
