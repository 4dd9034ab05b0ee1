// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/step_graph.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"

namespace step_graph_test {

namespace {

using shardkit::gpu::StepGraph;
using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::TimelineRef;
using standin::Pace;

constexpr Pace each_pace[] = {Pace::lazy, Pace::eager};

/// Three streams and what runs in them.
struct Rank {
    explicit Rank(Pace compute_pace = Pace::lazy, Pace communication_pace = Pace::lazy) {
        standin::set_pace(streams.compute.native(), compute_pace);
        standin::set_pace(streams.communication.native(), communication_pace);
        standin::set_pace(streams.reduction.native(), communication_pace);
    }
    ~Rank() { streams.synchronize(); }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    CleanMachine machine;
    HostWork work;
    Stream compute_stream, communication_stream, reduction_stream;
    Timeline compute{compute_stream.ref(), {.events = 8, .scratch_bytes = 0}};
    Timeline communication{communication_stream.ref(), {.events = 8, .scratch_bytes = 0}};
    Timeline reduction{reduction_stream.ref(), {.events = 8, .scratch_bytes = 0}};
    shardkit::Streams streams{compute.ref(), communication.ref(), reduction.ref()};
};

}  // namespace

TEST_CASE("StepGraph: what each stream is given in the step is done at every launch, and only there") {
    Rank rank;
    const TimelineRef compute = rank.compute.ref();
    const TimelineRef communication = rank.communication.ref();
    const TimelineRef reduction = rank.reduction.ref();
    int gathers = 0;
    int sums = 0;
    int products = 0;
    const StepGraph graph(rank.streams, [&] {
        rank.work.enqueue(communication, [&] { ++gathers; });
        rank.work.enqueue(reduction, [&] { ++sums; });
        rank.work.enqueue(compute, [&] { ++products; });
    });
    communication.synchronize();
    reduction.synchronize();
    compute.synchronize();
    CHECK(gathers == 0);
    CHECK(sums == 0);
    CHECK(products == 0);
    for (int launches = 1; launches <= 3; ++launches) {
        graph.launch();
        compute.synchronize();
        CHECK(gathers == launches);
        CHECK(sums == launches);
        CHECK(products == launches);
    }
}

TEST_CASE("StepGraph: work before and after a capture and its launches is ordered with all streams") {
    for (const Pace compute_pace : each_pace) {
        for (const Pace communication_pace : each_pace) {
            Rank rank(compute_pace, communication_pace);
            const TimelineRef compute = rank.compute.ref();
            const TimelineRef communication = rank.communication.ref();
            const TimelineRef reduction = rank.reduction.ref();
            int clock = 0;
            const auto at = [&](const TimelineRef& stream, int time) {
                rank.work.enqueue(stream, [&clock, time] {
                    CHECK(clock == time);
                    ++clock;
                });
            };
            at(communication, 0);
            const StepGraph graph(rank.streams, [&] { rank.work.enqueue(compute, [&] { ++clock; }); });
            at(compute, 1);
            const StepGraph another(rank.streams, [] {});
            at(communication, 2);
            graph.launch();
            at(communication, 4);
            graph.launch();
            at(reduction, 6);
            graph.launch();
            at(compute, 8);
            communication.synchronize();
            reduction.synchronize();
            compute.synchronize();
            CHECK(clock == 9);
        }
    }
}

TEST_CASE("StepGraph: a step that throws is not captured, and the streams go on") {
    Rank rank;
    const TimelineRef compute = rank.compute.ref();
    const TimelineRef communication = rank.communication.ref();
    int clock = 0;
    rank.work.enqueue(communication, [&] { clock = 1; });
    const auto capture = [&] {
        const StepGraph graph(rank.streams, [&] {
            rank.work.enqueue(compute, [&] { clock = -1; });
            throw std::runtime_error("planted");
        });
    };
    CHECK_THROWS_WITH_AS(capture(), "planted", std::runtime_error);
    rank.work.enqueue(compute, [&] { clock = 2 * clock; });
    compute.synchronize();
    CHECK(clock == 2);
}

}  // namespace step_graph_test
