// SPDX-License-Identifier: Apache-2.0
// The CUDA half of the stand-in; the NCCL half is in standin_nccl_test.cpp.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cuda_fixture.hpp"

namespace standin_test {

using standin::Pace;

TEST_CASE("lazy: work runs in order, and only when somebody waits for it") {
    const Fresh fresh;
    std::vector<int> ran;
    TestStream a;
    TestStream b;
    for (int i = 0; i < 3; ++i) {
        a.run([&ran, i] { ran.push_back(i); });
    }
    b.run([&] { ran.push_back(10); });
    CHECK(ran.empty());
    CHECK(standin::live().queued == 4);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(ran == std::vector{0, 1, 2});  // b was not needed
    CHECK(cudaStreamQuery(b) == cudaSuccess);
    CHECK(ran == std::vector{0, 1, 2, 10});
    a.run([&] { ran.push_back(4); });
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(ran.back() == 4);
}

TEST_CASE("eager: work runs at once, for one stream or for all") {
    const Fresh fresh;
    std::vector<int> ran;
    TestStream a;
    TestStream b;
    standin::set_pace(a, Pace::eager);
    b.run([&] { ran.push_back(10); });
    a.run([&] { ran.push_back(1); });
    CHECK(ran == std::vector{1});
    standin::set_pace(Pace::eager);
    CHECK(ran == std::vector{1, 10});
    TestStream c;
    c.run([&] { ran.push_back(20); });
    CHECK(ran.back() == 20);
}

TEST_CASE("a wait makes an edge; without it the reader comes too early") {
    const Fresh fresh;
    for (const bool with_edge : {true, false}) {
        DeviceArray<int> memory(1);
        TestStream writer;
        TestStream reader;
        TestEvent written;
        int seen = 0;
        writer.run([&] { memory[0] = 7; });
        CHECK(cudaEventRecord(written, writer) == cudaSuccess);
        writer.run([&] { memory[0] = 8; });
        if (with_edge) { CHECK(cudaStreamWaitEvent(reader, written) == cudaSuccess); }
        CHECK(cudaMemcpyAsync(&seen, memory.data, sizeof(int), cudaMemcpyDeviceToHost, reader) == cudaSuccess);
        CHECK(cudaStreamSynchronize(reader) == cudaSuccess);
        CHECK(seen == (with_edge ? 7 : -1));  // new memory is poisoned; the second write is not waited for
        CHECK(cudaStreamSynchronize(writer) == cudaSuccess);
    }
}

TEST_CASE("a wait takes the event's record as of the call") {
    const Fresh fresh;
    int value = 0;
    int seen = 0;
    TestStream writer;
    TestStream reader;
    TestEvent event;
    CHECK(cudaStreamWaitEvent(reader, event) == cudaSuccess);  // never recorded: nothing to wait for
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    writer.run([&] { value = 1; });
    CHECK(cudaEventRecord(event, writer) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(reader, event) == cudaSuccess);
    writer.run([&] { value = 2; });
    CHECK(cudaEventRecord(event, writer) == cudaSuccess);
    reader.run([&] { seen = value; });
    CHECK(cudaStreamSynchronize(reader) == cudaSuccess);
    CHECK(seen == 1);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(value == 2);
}

TEST_CASE("events have times where they take them, have been recorded and are done") {
    const Fresh fresh;
    TestStream a, b;
    const TestEvent untimed;
    cudaEvent_t first = nullptr, second = nullptr;
    CHECK(cudaEventCreateWithFlags(&first, cudaEventDefault) == cudaSuccess);
    CHECK(cudaEventCreateWithFlags(&second, cudaEventDefault) == cudaSuccess);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorInvalidResourceHandle);  // never recorded
    CHECK(cudaEventRecord(first, a) == cudaSuccess);
    b.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    CHECK(cudaEventRecord(second, b) == cudaSuccess);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorNotReady);
    CHECK(cudaEventElapsedTime(&ms, second, first) == cudaErrorNotReady);
    CHECK(ms == -1);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaSuccess);
    CHECK(ms >= 2);
    CHECK(cudaEventElapsedTime(nullptr, first, second) == cudaErrorInvalidValue);
    CHECK(cudaEventRecord(untimed, a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(a) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, first, untimed) == cudaErrorInvalidResourceHandle);
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaEventRecord(second, a) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorCapturedEvent);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, first, second) == cudaErrorCapturedEvent);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaEventDestroy(first) == cudaSuccess);
    CHECK(cudaEventDestroy(second) == cudaSuccess);
}

TEST_CASE("queries make progress, after the delay that was asked for") {
    const Fresh fresh;
    standin::set_query_delay(2);
    bool ran = false;
    TestStream stream;
    TestEvent event;
    stream.run([&] { ran = true; });
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK_FALSE(ran);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(ran);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorNotReady);  // "not ready" stays the last error until it is cleared
}

TEST_CASE("a held stream makes a bounded wait, not a hang") {
    const Fresh fresh;
    TestStream stream;
    bool ran = false;
    standin::hold(stream);
    stream.run([&] { ran = true; });
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    standin::set_patience(std::chrono::milliseconds(20));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchTimeout);
    CHECK(standin::hangs() == 1);
    standin::set_patience(std::chrono::milliseconds(20000));
    std::thread other([&] { standin::release(stream); });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    other.join();
    CHECK(ran);
}

TEST_CASE("a destroyed stream's work still runs, as late as possible") {
    const Fresh fresh;
    DeviceArray<int> memory(1);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMemsetAsync(memory.data, 0, sizeof(int), stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(memory[0] == -1);
    CHECK(standin::live().queued == 1);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(memory[0] == 0);
}

TEST_CASE("default streams and foreign handles are refused") {
    const Fresh fresh;
    TestEvent event;
    DeviceArray<int> memory(1);
    for (cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
        CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidValue);
        CHECK(cudaStreamQuery(stream) == cudaErrorInvalidValue);
        CHECK(cudaEventRecord(event, stream) == cudaErrorInvalidValue);
        CHECK(cudaStreamWaitEvent(stream, event) == cudaErrorInvalidValue);
        CHECK(cudaMemsetAsync(memory.data, 0, 4, stream) == cudaErrorInvalidValue);
        CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidValue);
        cudaStreamCaptureStatus status{};
        CHECK(cudaStreamGetCaptureInfo(stream, &status) == cudaErrorInvalidValue);
    }
    CHECK(cudaEventDestroy(nullptr) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("devices belong to threads, streams and events to devices") {
    const Fresh fresh;
    standin::set_device_count(2);
    int device = -1;
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    TestStream on_1;
    std::thread([&] {
        int here = -1;
        CHECK(cudaGetDevice(&here) == cudaSuccess);
        CHECK(here == 0);
    }).join();
    CHECK(cudaStreamGetDevice(on_1, &device) == cudaSuccess);
    CHECK(device == 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    TestEvent on_0;
    TestStream also_on_0;
    CHECK(cudaEventRecord(on_0, on_1) == cudaErrorInvalidResourceHandle);
    CHECK(cudaLaunchHostFunc(
              on_1, [](void*) {}, nullptr) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(on_0, also_on_0) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(on_1, on_0) == cudaSuccess);  // across devices
    CHECK(cudaStreamSynchronize(on_1) == cudaSuccess);
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1) == cudaSuccess);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 2) == cudaErrorInvalidDevice);
}

TEST_CASE("no devices") {
    const Fresh fresh;
    standin::set_device_count(0);
    int count = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 1) == cudaErrorNoDevice);
    CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
}

TEST_CASE("pointer attributes tell the kinds of memory") {
    const Fresh fresh;
    CHECK(cudaSetDevice(3) == cudaSuccess);
    DeviceArray<int> memory(4);
    void* pinned = nullptr;
    void* managed = nullptr;
    CHECK(cudaMallocHost(&pinned, 16) == cudaSuccess);
    CHECK(cudaMallocManaged(&managed, 16) == cudaSuccess);
    int ordinary = 0;
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, memory.data + 3) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeDevice);
    CHECK(attributes.device == 3);
    CHECK(attributes.hostPointer == nullptr);
    CHECK(cudaPointerGetAttributes(&attributes, memory.data + 4) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK(cudaPointerGetAttributes(&attributes, managed) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeManaged);
    CHECK(cudaPointerGetAttributes(&attributes, &ordinary) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
    CHECK(cudaFreeHost(memory.data) == cudaErrorInvalidValue);
    CHECK(cudaFree(&ordinary) == cudaErrorInvalidValue);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaFree(managed) == cudaSuccess);
}

TEST_CASE("memory: sizes, limits, and a free waits for the device") {
    const Fresh fresh;
    void* none = &none;
    CHECK(cudaMalloc(&none, 0) == cudaSuccess);
    CHECK(none == nullptr);
    standin::set_device_memory(100);
    CHECK(cudaMalloc(&none, 101) == cudaErrorMemoryAllocation);
    TestStream stream;
    bool ran = false;
    {
        DeviceArray<char> memory(100);
        CHECK(standin::device_bytes(0) == 100);
        CHECK(cudaMalloc(&none, 1) == cudaErrorMemoryAllocation);
        stream.run([&] { ran = memory[0] == -1; });
    }
    CHECK(ran);
    CHECK(standin::device_bytes(0) == 0);
    CHECK(standin::peak_device_bytes(0) == 100);
    CHECK(standin::frees_in_use().empty());
    void* pinned = nullptr;
    CHECK(cudaHostAlloc(&pinned, 8, cudaHostAllocPortable) == cudaSuccess);
    CHECK(cudaMemsetAsync(pinned, 0, 8, stream) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(standin::frees_in_use().size() == 1);
}

TEST_CASE("copies are counted by direction, pageable ones too, and memory is pinned as a whole or not at all") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<char> device(16);
    std::vector<char> pageable(16);
    void* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, 16) == cudaSuccess);
    auto* const bytes = static_cast<char*>(pinned);
    CHECK(standin::pinned_bytes(0) == 16);
    CHECK(cudaMemcpyAsync(device.data, bytes, 16, cudaMemcpyDefault, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(bytes, device.data, 8, cudaMemcpyDefault, stream) == cudaSuccess);
    CHECK(standin::copied(0).pageable == 0);
    CHECK(cudaMemcpyAsync(pageable.data(), device.data, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(standin::copied(0).to_device == 16);
    CHECK(standin::copied(0).to_host == 12);
    CHECK(standin::copied(0).calls == 3);
    CHECK(standin::copied(0).pageable == 4);
    // Ranges that begin before pinned memory, or end behind it.
    CHECK(cudaMemcpyAsync(device.data, bytes - 4, 8, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(device.data, bytes + 12, 8, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(standin::pinned_bytes(0) == 0);
}

TEST_CASE("copies check direction, size and overlap") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<int> a(4);
    DeviceArray<int> b(4);
    std::vector<int> host{1, 2, 3, 4};
    CHECK(cudaMemcpyAsync(a.data, host.data(), 16, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(b.data, a.data, 16, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(host.data(), b.data, 8, cudaMemcpyDefault, stream) == cudaSuccess);
    host[2] = 30;  // copies are as late as can be: the host's memory is still in use
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(b[2] == 30);
    CHECK(cudaMemcpyAsync(a.data, host.data(), 16, cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(host.data(), b.data, 16, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(a.data + 1, host.data(), 16, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(a.data + 1, a.data, 8, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(host.data(), 0, 16, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(a.data, 0, 17, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDefault, stream) == cudaSuccess);
}

TEST_CASE("errors: last error, texts, injected failures, broken devices") {
    const Fresh fresh;
    TestStream stream;
    void* memory = nullptr;
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&memory, 1) == cudaErrorMemoryAllocation);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    std::thread([] { CHECK(cudaGetLastError() == cudaSuccess); }).join();
    CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(standin::calls("cudaMalloc") == 2);
    CHECK(standin::calls("cudaNeverCalled") == 0);
    standin::reset_calls();
    CHECK(standin::calls("cudaMalloc") == 0);

    standin::fail_after("cudaStreamQuery", 1, cudaErrorLaunchFailure);
    standin::fail_next("cudaStreamQuery", cudaErrorAssert, 5);  // another device's
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaStreamQuery(stream) == cudaErrorLaunchFailure);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);

    CHECK(std::string_view(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
    CHECK(std::string_view(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
    CHECK(std::string_view(cudaGetErrorString(static_cast<cudaError_t>(998))) == "unrecognized error code");

    bool ran = false;
    stream.run([&] { ran = true; });
    std::thread other([] { standin::break_device(0, cudaErrorIllegalAddress); });
    other.join();
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    CHECK(cudaMalloc(&memory, 1) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);  // sticky
    CHECK_FALSE(ran);
    CHECK(cudaSetDevice(1) == cudaSuccess);  // the others are well
    CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
    standin::reset();
    CHECK(cudaStreamCreateWithFlags(&stream.native, 0) == cudaSuccess);  // for the destructor
}

TEST_CASE("no CUDA calls in host functions") {
    const Fresh fresh;
    TestStream stream;
    cudaError_t result = cudaSuccess;
    stream.run([&] { result = cudaStreamQuery(stream); });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(result == cudaErrorNotPermitted);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

namespace {}  // namespace

TEST_CASE("graphs: captured work runs at each launch, not at the capture") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<int> memory(1);
    int count = 0;
    cudaGraphExec_t graph = captured(stream, [&] {
        cudaStreamCaptureStatus status{};
        unsigned long long id = 0;
        CHECK(cudaStreamGetCaptureInfo(stream, &status, &id) == cudaSuccess);
        CHECK(status == cudaStreamCaptureStatusActive);
        CHECK(id != 0);
        stream.run([&] { ++count; });
        CHECK(cudaMemsetAsync(memory.data, 0, sizeof(int), stream) == cudaSuccess);
        stream.run([&] { memory[0] += count; });
    });
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(count == 0);
    for (int i = 1; i <= 3; ++i) {
        CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
        CHECK(count == i - 1);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(count == i);
        CHECK(memory[0] == i);
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(graph, stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("graphs: a second stream joins by an event; a missing edge gives the other order") {
    const Fresh fresh;
    for (const bool with_edge : {true, false}) {
        TestStream first;
        TestStream second;
        TestEvent fork;
        TestEvent written;
        TestEvent join;
        int value = 0;
        int seen = 0;
        cudaGraphExec_t graph = captured(first, [&] {
            CHECK(cudaEventRecord(fork, first) == cudaSuccess);
            CHECK(cudaStreamWaitEvent(second, fork) == cudaSuccess);
            first.run([&] { value = 1; });
            CHECK(cudaEventRecord(written, first) == cudaSuccess);
            if (with_edge) { CHECK(cudaStreamWaitEvent(second, written) == cudaSuccess); }
            second.run([&] { seen = value; });
            CHECK(cudaEventRecord(join, second) == cudaSuccess);
            CHECK(cudaStreamWaitEvent(first, join) == cudaSuccess);
        });
        CHECK(cudaGraphLaunch(graph, first) == cudaSuccess);
        CHECK(cudaStreamSynchronize(first) == cudaSuccess);
        CHECK(seen == (with_edge ? 1 : 0));
        CHECK(cudaEventQuery(written) == cudaErrorCapturedEvent);
        CHECK(cudaStreamQuery(second) == cudaSuccess);
        CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    }
}

TEST_CASE("graphs: what spoils a capture") {
    const Fresh fresh;
    TestStream stream;
    TestStream other;
    TestEvent event;
    cudaGraph_t graph = nullptr;
    void* memory = nullptr;
    const auto begin = [&](cudaStreamCaptureMode mode) {
        CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
    };
    const auto is_spoilt = [&](cudaError_t error) {
        CHECK(cudaStreamEndCapture(stream, &graph) == error);
        CHECK(graph == nullptr);
        cudaStreamCaptureStatus status{};
        CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
        CHECK(status == cudaStreamCaptureStatusNone);
    };
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);

    begin(cudaStreamCaptureModeThreadLocal);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaErrorIllegalState);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaEventRecord(event, stream) == cudaErrorStreamCaptureInvalidated);
    is_spoilt(cudaErrorStreamCaptureInvalidated);

    CHECK(cudaEventRecord(event, other) == cudaSuccess);
    begin(cudaStreamCaptureModeThreadLocal);
    CHECK(cudaStreamWaitEvent(stream, event) == cudaErrorStreamCaptureIsolation);
    is_spoilt(cudaErrorStreamCaptureInvalidated);

    begin(cudaStreamCaptureModeThreadLocal);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(other, event) == cudaSuccess);
    other.run([] {});
    CHECK(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureUnmatched);
    is_spoilt(cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamWaitEvent(other, event) == cudaErrorCapturedEvent);

    begin(cudaStreamCaptureModeThreadLocal);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(other, event) == cudaSuccess);
    other.run([] {});
    is_spoilt(cudaErrorStreamCaptureUnjoined);
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);

    begin(cudaStreamCaptureModeGlobal);
    std::thread([&] {
        void* elsewhere = nullptr;
        CHECK(cudaMalloc(&elsewhere, 1) == cudaErrorStreamCaptureUnsupported);
    }).join();
    is_spoilt(cudaErrorStreamCaptureInvalidated);

    // What another thread asks or waits for spoils a global capture too, unless that thread has relaxed its mode.
    for (const bool relaxed : {false, true}) {
        begin(cudaStreamCaptureModeGlobal);
        std::thread([&] {
            TestStream its;
            TestEvent recorded;
            CHECK(cudaEventRecord(recorded, its) == cudaSuccess);
            cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
            if (relaxed) { CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess); }
            const cudaError_t expected = relaxed ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
            CHECK(cudaEventQuery(recorded) == expected);
            CHECK(cudaStreamQuery(its) == expected);
            CHECK(cudaEventSynchronize(recorded) == expected);
            CHECK(cudaStreamSynchronize(its) == expected);
            if (relaxed) {
                CHECK(mode == cudaStreamCaptureModeGlobal);
                CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);  // the capture itself
            }
        }).join();
        is_spoilt(cudaErrorStreamCaptureInvalidated);
    }

    begin(cudaStreamCaptureModeThreadLocal);
    CHECK(cudaMalloc(&memory, 1) == cudaErrorStreamCaptureUnsupported);
    is_spoilt(cudaErrorStreamCaptureInvalidated);

    begin(cudaStreamCaptureModeRelaxed);
    CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("a forgotten call succeeds, is counted and does nothing") {
    const Fresh fresh;
    TestStream stream;
    int count = 0;
    standin::forget_next("cudaLaunchHostFunc", 3);  // another device's
    standin::forget_next("cudaLaunchHostFunc");
    for (int i = 0; i < 3; ++i) {
        stream.run([&] { ++count; });
    }
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(count == 2);
    CHECK(standin::calls("cudaLaunchHostFunc") == 3);
}

TEST_CASE("threads with streams of their own do not disturb each other") {
    const Fresh fresh;
    on_ranks(4, [](int rank) {
        TestStream a;
        TestStream b;
        TestEvent event;
        DeviceArray<int> memory(1);
        for (int i = 0; i < 100; ++i) {
            a.run([&memory, i] { memory[0] = i; });
            CHECK(cudaEventRecord(event, a) == cudaSuccess);
            CHECK(cudaStreamWaitEvent(b, event) == cudaSuccess);
            int seen = 0;
            CHECK(cudaMemcpyAsync(&seen, memory.data, sizeof(int), cudaMemcpyDeviceToHost, b) == cudaSuccess);
            CHECK((rank % 2 == 0 ? cudaStreamSynchronize(b) : cudaStreamQuery(b)) == cudaSuccess);
            CHECK(seen == i);
        }
    });
}

TEST_CASE("a full launch queue blocks whoever gives the stream more, until some of it is done") {
    const Fresh fresh;
    standin::set_launch_queue(3);
    std::vector<int> ran;
    TestStream stream;
    TestEvent event;
    for (int i = 0; i < 3; ++i) {
        stream.run([&ran, i] { ran.push_back(i); });
    }
    CHECK(ran.empty());
    stream.run([&ran] { ran.push_back(3); });
    CHECK(ran == std::vector{0});
    standin::hold(stream);
    standin::set_patience(std::chrono::milliseconds(50));
    CHECK(cudaEventRecord(event, stream) == cudaErrorLaunchTimeout);
    CHECK(standin::hangs() == 1);
    standin::release(stream);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(ran == std::vector{0, 1});
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

}  // namespace standin_test
