// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/stream.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"
#include "unit/thrown_message.hpp"

namespace stream_test {

using shardkit::gpu::Error;
using shardkit::gpu::Event;
using shardkit::gpu::Stream;
using shardkit::gpu::StreamRef;

static_assert(!std::is_convertible_v<cudaStream_t, StreamRef>, "a default stream must not slip in");
static_assert(!std::is_default_constructible_v<StreamRef>);
static_assert(!std::is_copy_constructible_v<Stream> && std::is_nothrow_move_constructible_v<Stream>);
static_assert(!std::is_copy_constructible_v<Event> && std::is_nothrow_move_constructible_v<Event>);
static_assert(std::is_nothrow_move_assignable_v<Stream> && std::is_nothrow_move_assignable_v<Event>);

TEST_CASE("StreamRef: every default stream is refused by its name, with the user's line") {
    const auto message = [](cudaStream_t stream) {
        return thrown_message<std::invalid_argument>([&] { const StreamRef ref(stream); });
    };
    CHECK(message(nullptr).find("StreamRef: the null stream given, expected a stream made by") == 0);
    CHECK(message(cudaStreamLegacy).find("StreamRef: cudaStreamLegacy given") == 0);
    CHECK(message(cudaStreamPerThread).find("StreamRef: cudaStreamPerThread given") == 0);
    CHECK(message(nullptr).find("stream_test.cpp:") != std::string::npos);
}

TEST_CASE("Stream: is non-blocking, moves, and is destroyed once") {
    const CleanMachine machine;
    {
        Stream first;
        Stream second;
        unsigned int flags = 0;
        CHECK(cudaStreamGetFlags(first.ref().native(), &flags) == cudaSuccess);
        CHECK(flags == cudaStreamNonBlocking);
        const cudaStream_t native = first.ref().native();
        Stream moved(std::move(first));
        CHECK(moved.ref().native() == native);
        second = std::move(moved);
        CHECK(second.ref().native() == native);
        const Stream taken(std::move(second));
        CHECK_THROWS_AS(static_cast<void>(second.ref()), std::invalid_argument);  // NOLINT(bugprone-use-after-move)
    }
    CHECK(standin::calls("cudaStreamCreateWithPriority") == 2);
    CHECK(standin::calls("cudaStreamDestroy") == 2);
}

TEST_CASE("Stream and Event: a failed creation throws and leaves nothing") {
    const CleanMachine machine;
    standin::fail_next("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation);
    CHECK(thrown_message<Error>([] { const Stream stream; }).find("cuda: cudaStreamCreateWithPriority at ") == 0);
    standin::fail_next("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
    CHECK(thrown_message<Error>([] { const Event event; }).find("cuda: cudaEventCreateWithFlags at ") == 0);
}

TEST_CASE("StreamRef: work behind a wait runs after the event, in another stream, and only then") {
    const CleanMachine machine;
    const Stream producer;
    const Stream consumer;
    const Event made;
    HostWork work;
    int value = 0;
    int seen = -1;
    work.enqueue(producer.ref(), [&] { value = 7; });
    producer.ref().record(made);
    consumer.ref().wait(made);
    work.enqueue(consumer.ref(), [&] { seen = value; });
    CHECK(value == 0);
    consumer.ref().synchronize();
    CHECK(seen == 7);
}

TEST_CASE("StreamRef: without the wait the stand-in runs the consumer first, so the test above proves the edge") {
    const CleanMachine machine;
    const Stream producer;
    const Stream consumer;
    HostWork work;
    int value = 0;
    int seen = -1;
    work.enqueue(producer.ref(), [&] { value = 7; });
    work.enqueue(consumer.ref(), [&] { seen = value; });
    consumer.ref().synchronize();
    CHECK(seen == 0);
    producer.ref().synchronize();
}

TEST_CASE("Event: synchronize waits for the latest record") {
    const CleanMachine machine;
    const Stream stream;
    Event first;
    Event event(std::move(first));
    HostWork work;
    bool done = false;
    event.synchronize();  // never recorded
    work.enqueue(stream.ref(), [&] { done = true; });
    stream.ref().record(event);
    CHECK(!done);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    event.synchronize();
    CHECK(done);
}

TEST_CASE("StreamRef and Event: each failed call is named") {
    const CleanMachine machine;
    const Stream stream;
    const Event event;
    const auto message = [](const char* call, const auto& f) {
        standin::fail_next(call, cudaErrorLaunchFailure);
        return thrown_message<Error>(f);
    };
    CHECK(message("cudaEventRecord", [&] { stream.ref().record(event); }).find("cuda: cudaEventRecord at ") == 0);
    CHECK(message("cudaStreamWaitEvent", [&] { stream.ref().wait(event); }).find("cuda: cudaStreamWaitEvent at ") ==
          0);
    CHECK(message("cudaStreamSynchronize", [&] {
              stream.ref().synchronize();
          }).find("cuda: cudaStreamSynchronize at ") == 0);
    CHECK(message("cudaEventSynchronize", [&] { event.synchronize(); }).find("cuda: cudaEventSynchronize at ") == 0);
}

}  // namespace stream_test
