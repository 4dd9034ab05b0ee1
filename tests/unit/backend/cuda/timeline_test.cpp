// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"
#include "unit/thrown_message.hpp"

namespace timeline_test {

using shardkit::SourceLocation;
using shardkit::gpu::Error;
using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::TimelineOptions;
using shardkit::gpu::TimelineRef;
using shardkit::gpu::Watch;
using shardkit::gpu::detail::DeviceGuard;
using shardkit::gpu::detail::require_device_memory;
using standin::Pace;

static_assert(!std::is_copy_constructible_v<Timeline> && !std::is_move_constructible_v<Timeline>);
static_assert(!std::is_default_constructible_v<TimelineRef>, "there is no default stream");
static_assert(std::is_trivially_copyable_v<TimelineRef> && std::is_trivially_copyable_v<shardkit::Event>);

namespace {

TimelineOptions ring_of(std::size_t events) { return {.events = events, .scratch_bytes = 1024}; }

struct Pair {
    explicit Pair(std::size_t events = 4, Pace producer_pace = Pace::lazy, Pace consumer_pace = Pace::lazy)
        : producer(producer_stream.ref(), ring_of(events)), consumer(consumer_stream.ref(), ring_of(events)) {
        standin::set_pace(producer_stream.ref().native(), producer_pace);
        standin::set_pace(consumer_stream.ref().native(), consumer_pace);
    }
    CleanMachine machine;
    HostWork work;
    Stream producer_stream;
    Stream consumer_stream;
    Timeline producer;
    Timeline consumer;
};

constexpr std::array<std::array<Pace, 2>, 4> paces{
    {{Pace::lazy, Pace::lazy}, {Pace::lazy, Pace::eager}, {Pace::eager, Pace::lazy}, {Pace::eager, Pace::eager}}};

struct Planted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws at poll number `last`; keeps the stream from being ready until then.
class CountingWatch final : public Watch {
  public:
    explicit CountingWatch(int last) : last_(last) {}
    void begin() noexcept override { ++begins; }
    void poll(SourceLocation where) override {
        line = where.line;
        if (++polls == last_) { throw Planted("peer gone"); }
    }
    int begins = 0;
    int polls = 0;
    std::uint32_t line = 0;

  private:
    int last_;
};

}  // namespace

TEST_CASE("Timeline: work behind a wait runs after the event of another timeline, in every pace") {
    for (const auto& [producer_pace, consumer_pace] : paces) {
        Pair p(4, producer_pace, consumer_pace);
        int value = 0;
        int seen = -1;
        p.work.enqueue(p.producer.ref(), [&] { value = 7; });
        p.consumer.ref().wait(p.producer.ref().record());
        p.work.enqueue(p.consumer.ref(), [&] { seen = value; });
        p.consumer.ref().synchronize();
        CHECK(seen == 7);
    }
}

TEST_CASE("Timeline: a default event has happened, and waiting for one's own event does nothing") {
    Pair p;
    p.consumer.ref().wait({});
    const shardkit::Event own = p.consumer.ref().record();
    p.consumer.ref().wait(own);
    CHECK(standin::calls("cudaStreamWaitEvent") == 0);
    p.producer.ref().wait(own);
    CHECK(standin::calls("cudaStreamWaitEvent") == 1);
}

TEST_CASE("Timeline: sequences much longer than the ring lose no edge in either direction") {
    constexpr std::size_t steps = 60;
    constexpr std::size_t slots = 2;
    for (const std::size_t events : {1U, 2U, 3U, 7U}) {
        for (const auto& [producer_pace, consumer_pace] : paces) {
            Pair p(events, producer_pace, consumer_pace);
            std::array<std::size_t, slots> buffer{};
            std::vector<std::size_t> read;
            std::array<shardkit::Event, slots> released{};
            for (std::size_t i = 0; i < steps; ++i) {
                std::size_t& slot = buffer[i % slots];
                p.producer.ref().wait(released[i % slots]);
                p.work.enqueue(p.producer.ref(), [&slot, i] { slot = i; });
                const shardkit::Event written = p.producer.ref().record();
                for (std::size_t other = 0; other < i % 4; ++other) { p.producer.ref().record(); }
                p.consumer.ref().wait(written);
                p.work.enqueue(p.consumer.ref(), [&slot, &read] { read.push_back(slot); });
                released[i % slots] = p.consumer.ref().record();
                for (std::size_t other = 0; other < i % 3; ++other) { p.consumer.ref().record(); }
            }
            p.consumer.ref().synchronize();
            REQUIRE(read.size() == steps);
            for (std::size_t i = 0; i < steps; ++i) { CHECK(read[i] == i); }
        }
    }
}

TEST_CASE("Timeline: an event that the ring has passed over waits for the oldest in the ring, never for less") {
    for (const std::size_t events : {1U, 2U, 5U}) {
        for (std::size_t later = 0; later <= 3 * events + 1; ++later) {
            Pair p(events);
            std::size_t done = 0;
            p.work.enqueue(p.producer.ref(), [&] { ++done; });
            const shardkit::Event first = p.producer.ref().record();
            for (std::size_t i = 0; i < later; ++i) {
                p.work.enqueue(p.producer.ref(), [&] { ++done; });
                p.producer.ref().record();
            }
            const shardkit::Event copy = first;
            p.consumer.ref().wait(copy);
            std::size_t seen = 0;
            p.work.enqueue(p.consumer.ref(), [&] { seen = done; });
            p.consumer.ref().synchronize();
            CHECK(seen == 1 + (later < events ? 0 : later + 1 - events));
            p.producer.ref().synchronize();
        }
    }
}

TEST_CASE("Timeline: recording, waiting and synchronizing creates and allocates nothing") {
    Pair p(4);
    standin::reset_calls();
    for (int i = 0; i < 20; ++i) {
        p.consumer.ref().wait(p.producer.ref().record());
        p.consumer.ref().synchronize();
    }
    CHECK(standin::calls("cudaEventRecord") == 20);
    CHECK(standin::calls("cudaStreamWaitEvent") == 20);
    for (const char* call : {"cudaEventCreateWithFlags", "cudaMalloc", "cudaMallocHost", "cudaSetDevice"}) {
        CHECK(standin::calls(call) == 0);
    }
}

TEST_CASE("Timeline: scratch and events are of its device, and the selected device stays") {
    const CleanMachine machine;
    {
        const DeviceGuard guard(2);
        const Stream stream;
        const DeviceGuard back(0);
        Timeline timeline(stream.ref(), {.device = 2});
        CHECK(timeline.ref().device() == 2);
        CHECK(timeline.ref().native() == stream.ref().native());
        CHECK(timeline.ref().scratch().size() == (1U << 20U) + (64U << 10U));
        CHECK_NOTHROW(
            require_device_memory(timeline.ref().scratch().data(), timeline.ref().scratch().size(), 2, "scratch"));
        CHECK(shardkit::gpu::detail::current_device() == 0);
    }
    const Stream stream;
    Timeline none(stream.ref(), {.scratch_bytes = 0});
    CHECK(none.ref().scratch().empty());
    CHECK(none.ref().device() == 0);
}

TEST_CASE("Timeline: a stream of another device, a device that does not exist and a ring of nothing are refused") {
    const CleanMachine machine;
    const Stream stream;
    CHECK(thrown_message<Error>([&] {
              const Timeline timeline(stream.ref(), {.device = 1});
          }).find("cuda: cudaEventRecord at ") == 0);
    CHECK(thrown_message<Error>([&] {
              const Timeline timeline(stream.ref(), {.device = 99});
          }).find("cuda: cudaSetDevice at ") == 0);
    CHECK(thrown_message<std::invalid_argument>([&] {
              const Timeline timeline(stream.ref(), {.events = 0});
          }).find("EventRing: no events, expected at least 1") == 0);
}

TEST_CASE("Timeline: when its construction fails part-way nothing is left behind") {
    const CleanMachine machine;
    const Stream stream;
    for (const std::size_t successes : {0U, 1U, 3U, 5U}) {
        standin::fail_after("cudaEventCreateWithFlags", successes, cudaErrorMemoryAllocation);
        CHECK_THROWS_AS(Timeline(stream.ref(), ring_of(3)), Error);
        CHECK(standin::live().events == 0);
    }
    for (const char* call : {"cudaMalloc", "cudaMemsetAsync", "cudaEventRecord"}) {
        standin::fail_next(call, cudaErrorMemoryAllocation);
        CHECK(thrown_message<Error>([&] {
                  const Timeline timeline(stream.ref(), ring_of(3));
              }).find(std::string("cuda: ") + call + " at ") == 0);
        CHECK(standin::live().events == 0);
        CHECK(standin::live().device_allocations == 0);
    }
}

TEST_CASE("Timeline: without a watch synchronize waits in the runtime") {
    Pair p;
    bool done = false;
    p.work.enqueue(p.producer.ref(), [&] { done = true; });
    p.producer.ref().synchronize();
    CHECK(done);
    CHECK(standin::calls("cudaStreamQuery") == 0);
    CHECK(standin::calls("cudaStreamSynchronize") == 1);
}

TEST_CASE("Timeline: with a watch synchronize polls it with the user's line until the work is over") {
    const CleanMachine machine;
    const Stream stream;
    CountingWatch watch(0);
    Timeline timeline(stream.ref(), {.scratch_bytes = 0, .watch = &watch});
    HostWork work;
    int done = 0;
    standin::set_query_delay(3);
    work.enqueue(timeline.ref(), [&] { ++done; });
    timeline.ref().synchronize(SourceLocation{"train.cpp", 17});
    CHECK(done == 1);
    CHECK(watch.begins == 1);
    CHECK(watch.polls >= 3);
    CHECK(watch.line == 17);
    CHECK(standin::calls("cudaStreamSynchronize") == 0);
    const int polls = watch.polls;
    timeline.ref().synchronize();  // nothing to wait for
    CHECK(watch.begins == 1);      // there was nothing to wait for
    CHECK(watch.polls == polls);
}

TEST_CASE("Timeline: a watch that throws ends the wait, and the timeline can be waited for again") {
    const CleanMachine machine;
    const Stream stream;
    CountingWatch watch(2);
    Timeline timeline(stream.ref(), {.scratch_bytes = 0, .watch = &watch});
    HostWork work;
    bool done = false;
    standin::hold(stream.ref().native());
    work.enqueue(timeline.ref(), [&] { done = true; });
    CHECK(thrown_message<Planted>([&] { timeline.ref().synchronize(); }) == "peer gone");
    CHECK(!done);
    CHECK(watch.polls == 2);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    standin::release(stream.ref().native());
    timeline.ref().synchronize();
    CHECK(done);
}

TEST_CASE("Timeline: an error of the stream's work is thrown at the user's line, with and without a watch") {
    const CleanMachine machine;
    const Stream stream;
    CountingWatch watch(0);
    Timeline watched(stream.ref(), {.scratch_bytes = 0, .watch = &watch});
    Timeline plain(stream.ref(), {.scratch_bytes = 0});
    standin::fail_next("cudaStreamQuery", cudaErrorIllegalAddress);
    CHECK(thrown_message<Error>([&] {
              watched.ref().synchronize(SourceLocation{"train.cpp", 17});
          }).find("cuda: cudaStreamQuery at train.cpp:17: cudaErrorIllegalAddress: ") == 0);
    standin::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress);
    CHECK(thrown_message<Error>([&] {
              plain.ref().synchronize(SourceLocation{"train.cpp", 17});
          }).find("cuda: cudaStreamSynchronize at train.cpp:17: cudaErrorIllegalAddress: ") == 0);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("Timeline: a failed record or wait is kept, and every later synchronize of that timeline throws it") {
    static_assert(noexcept(std::declval<TimelineRef>().record()));
    static_assert(noexcept(std::declval<TimelineRef>().wait({})));
    {
        Pair p;
        standin::fail_next("cudaEventRecord", cudaErrorLaunchFailure);
        p.producer.ref().record();
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        for (int i = 0; i < 2; ++i) {
            CHECK(thrown_message<Error>([&] {
                      p.producer.ref().synchronize(SourceLocation{"train.cpp", 17});
                  }).find("cuda: cudaEventRecord at train.cpp:17: cudaErrorLaunchFailure: ") == 0);
        }
        CHECK_NOTHROW(p.consumer.ref().synchronize());
    }
    for (const bool waiting : {false, true}) {
        Pair p;
        const shardkit::Event event = p.producer.ref().record();
        standin::fail_next("cudaStreamGetCaptureInfo", cudaErrorInvalidResourceHandle);
        if (waiting) {
            p.consumer.ref().wait(event);
        } else {
            p.consumer.ref().record();
        }
        CHECK(thrown_message<Error>([&] {
                  p.consumer.ref().synchronize();
              }).find("cuda: cudaStreamGetCaptureInfo at ") == 0);
    }
    {
        Pair p;
        standin::fail_next("cudaStreamWaitEvent", cudaErrorInvalidResourceHandle);
        p.consumer.ref().wait(p.producer.ref().record());
        CHECK(thrown_message<Error>([&] { p.consumer.ref().synchronize(); }).find("cuda: cudaStreamWaitEvent at ") ==
              0);
        CHECK_NOTHROW(p.producer.ref().synchronize());
    }
}

TEST_CASE("Timeline: the host waits for one event and no further, and sees which events have happened since") {
    const CleanMachine machine;
    const Stream stream;
    CountingWatch watch(0);
    Timeline watched(stream.ref(), {.events = 4, .scratch_bytes = 0, .watch = &watch});
    Timeline plain(stream.ref(), {.events = 4, .scratch_bytes = 0});
    HostWork work;
    for (const auto timeline : {watched.ref(), plain.ref()}) {
        int done = 0;
        std::uint64_t passed = 0;
        CHECK(!timeline.advanced(passed));
        work.enqueue(timeline, [&] { ++done; });
        const auto event = timeline.record();
        work.enqueue(timeline, [&] { ++done; });
        standin::hold(stream.ref().native());
        CHECK(timeline.is_ahead(event));
        standin::release(stream.ref().native());
        timeline.synchronize(event);
        CHECK(!timeline.is_ahead(event));
        CHECK(!timeline.is_ahead({}));
        CHECK(done == 1);
        timeline.synchronize(shardkit::Event());
        CHECK(done == 1);
        CHECK(timeline.advanced(passed));
        CHECK(!timeline.advanced(passed));
        for (int i = 0; i < 9; ++i) { timeline.record(); }  // more than the ring has
        standin::hold(stream.ref().native());
        CHECK(!timeline.advanced(passed));
        standin::release(stream.ref().native());
        CHECK(timeline.advanced(passed));
        CHECK(done == 2);
    }
}

}  // namespace timeline_test
