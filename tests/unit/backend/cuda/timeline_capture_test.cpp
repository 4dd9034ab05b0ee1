// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"

namespace timeline_capture_test {

using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::TimelineRef;
using standin::Pace;

namespace {

/// A compute and a communication timeline, and a step as the containers make one: a gather that waits for the last
/// update and for the buffer's last use, work on what was gathered, an update.
struct Trainer {
    explicit Trainer(Pace pace, std::size_t events = 2)
        : machine(pace),
          compute(compute_stream.ref(), {.events = events, .scratch_bytes = 0}),
          communication(communication_stream.ref(), {.events = events, .scratch_bytes = 0}) {}

    void step() {
        communication.ref().wait(updated);
        communication.ref().wait(last_use);
        work.enqueue(communication.ref(), [this] { gathered = shard; });
        const shardkit::Event ready = communication.ref().record();
        compute.ref().wait(ready);
        work.enqueue(compute.ref(), [this] { seen.push_back(gathered); });
        last_use = compute.ref().record();
        work.enqueue(compute.ref(), [this] { ++shard; });
        updated = compute.ref().record();
    }
    cudaGraphExec_t capture(int steps) {
        REQUIRE(cudaStreamBeginCapture(compute.ref().native(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        communication.ref().wait(compute.ref().record());
        for (int i = 0; i < steps; ++i) { step(); }
        compute.ref().wait(communication.ref().record());
        cudaGraph_t graph = nullptr;
        REQUIRE(cudaStreamEndCapture(compute.ref().native(), &graph) == cudaSuccess);
        cudaGraphExec_t executable = nullptr;
        REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        return executable;
    }
    void launch(cudaGraphExec_t executable) {
        compute.ref().wait(communication.ref().record());
        REQUIRE(cudaGraphLaunch(executable, compute.ref().native()) == cudaSuccess);
        communication.ref().wait(compute.ref().record());
    }
    void check_sequence(std::size_t steps) {
        CHECK_NOTHROW(communication.ref().synchronize());
        CHECK_NOTHROW(compute.ref().synchronize());
        REQUIRE(seen.size() == steps);
        for (std::size_t i = 0; i < steps; ++i) { CHECK(seen[i] == i); }
    }

    CleanMachine machine;
    HostWork work;
    Stream compute_stream;
    Stream communication_stream;
    Timeline compute;
    Timeline communication;
    shardkit::Event updated{};
    shardkit::Event last_use{};
    std::size_t shard = 0;
    std::size_t gathered = 1000;
    std::vector<std::size_t> seen;
};

}  // namespace

TEST_CASE("Timeline: a captured step computes what a plain one does, between plain ones, rings shorter than a step") {
    for (const Pace pace : {Pace::lazy, Pace::eager}) {
        for (const std::size_t events : {1U, 2U, 64U}) {
            Trainer t(pace, events);
            t.step();
            t.step();
            cudaGraphExec_t graph = t.capture(3);
            t.launch(graph);
            t.launch(graph);
            t.step();
            t.launch(graph);
            t.step();
            t.step();
            t.check_sequence(2 + 3 + 3 + 1 + 3 + 2);
            CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
        }
    }
}

TEST_CASE("Timeline: a second capture after the first, with the events of the first still stored") {
    Trainer t(Pace::lazy);
    cudaGraphExec_t first = t.capture(1);
    cudaGraphExec_t second = t.capture(2);
    t.launch(second);
    t.launch(first);
    t.check_sequence(3);
    CHECK(cudaGraphExecDestroy(first) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(second) == cudaSuccess);
}

TEST_CASE("Timeline: waiting in a capture for an event from outside does nothing, and neither does the reverse") {
    Trainer t(Pace::lazy);
    const shardkit::Event outside = t.communication.ref().record();
    REQUIRE(cudaStreamBeginCapture(t.compute.ref().native(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    const shardkit::Event inside = t.compute.ref().record();
    standin::reset_calls();
    t.compute.ref().wait(outside);
    CHECK(standin::calls("cudaStreamWaitEvent") == 0);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(t.compute.ref().native(), &graph) == cudaSuccess);
    t.communication.ref().wait(inside);
    CHECK(standin::calls("cudaStreamWaitEvent") == 0);
    CHECK_NOTHROW(t.communication.ref().synchronize());
    CHECK_NOTHROW(t.compute.ref().synchronize());
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("Timeline: waiting for an event of a capture that still runs joins it") {
    Trainer t(Pace::lazy);
    REQUIRE(cudaStreamBeginCapture(t.compute.ref().native(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(t.communication.ref().native(), &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    t.communication.ref().wait(t.compute.ref().record());
    CHECK(cudaStreamIsCapturing(t.communication.ref().native(), &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    t.compute.ref().wait(t.communication.ref().record());
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(t.compute.ref().native(), &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("Timeline: an event from before a capture keeps its order after it, whatever the capture recorded") {
    for (const std::size_t events : {1U, 3U}) {
        Trainer t(Pace::lazy, events);
        int value = 0;
        int seen = -1;
        t.work.enqueue(t.compute.ref(), [&] { value = 7; });
        const shardkit::Event before = t.compute.ref().record();
        cudaGraphExec_t graph = t.capture(2);
        t.communication.ref().wait(before);
        t.work.enqueue(t.communication.ref(), [&] { seen = value; });
        CHECK_NOTHROW(t.communication.ref().synchronize());
        CHECK(seen == 7);
        CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    }
}

TEST_CASE("Timeline: a capture that was spoilt leaves the timelines as they were before it") {
    for (const Pace pace : {Pace::lazy, Pace::eager}) {
        Trainer t(pace);
        t.step();
        REQUIRE(cudaStreamBeginCapture(t.compute.ref().native(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        t.communication.ref().wait(t.compute.ref().record());
        CHECK(cudaStreamSynchronize(t.communication.ref().native()) == cudaErrorStreamCaptureUnsupported);
        const shardkit::Event spoilt = t.communication.ref().record();
        t.compute.ref().wait(spoilt);
        t.communication.ref().wait(t.compute.ref().record());
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(t.compute.ref().native(), &graph) == cudaErrorStreamCaptureInvalidated);
        static_cast<void>(cudaGetLastError());
        t.compute.ref().wait(spoilt);
        t.step();
        t.step();
        t.check_sequence(3);
    }
}

}  // namespace timeline_capture_test
