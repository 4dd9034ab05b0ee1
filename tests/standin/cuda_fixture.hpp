// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "standin.hpp"

/// Starts and ends with a fresh stand-in; tells when a test leaves something behind.
struct Fresh {
    Fresh() {
        standin::reset();
        standin::set_patience(std::chrono::milliseconds(20000));
    }
    ~Fresh() {
        CHECK(standin::live() == standin::Live{});
        standin::reset();
    }
    Fresh(const Fresh&) = delete;
    Fresh& operator=(const Fresh&) = delete;
};

struct TestStream {
    cudaStream_t native = nullptr;
    TestStream() { CHECK(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking) == cudaSuccess); }
    ~TestStream() { CHECK(cudaStreamDestroy(native) == cudaSuccess); }
    TestStream(const TestStream&) = delete;
    TestStream& operator=(const TestStream&) = delete;
    operator cudaStream_t() const { return native; }

    /// Queues a function, as a kernel.
    void run(std::function<void()> f) {
        functions.push_back(std::make_unique<std::function<void()>>(std::move(f)));
        CHECK(cudaLaunchHostFunc(
                  native, [](void* each) { (*static_cast<std::function<void()>*>(each))(); },
                  functions.back().get()) == cudaSuccess);
    }
    std::vector<std::unique_ptr<std::function<void()>>> functions;
};

struct TestEvent {
    cudaEvent_t native = nullptr;
    TestEvent() { CHECK(cudaEventCreateWithFlags(&native, cudaEventDisableTiming) == cudaSuccess); }
    ~TestEvent() { CHECK(cudaEventDestroy(native) == cudaSuccess); }
    TestEvent(const TestEvent&) = delete;
    TestEvent& operator=(const TestEvent&) = delete;
    operator cudaEvent_t() const { return native; }
};

template <class T>
struct DeviceArray {
    T* data = nullptr;
    explicit DeviceArray(std::size_t n) {
        CHECK(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(T)) == cudaSuccess);
    }
    ~DeviceArray() { CHECK(cudaFree(data) == cudaSuccess); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    T& operator[](std::size_t i) const { return data[i]; }
};

/// Captures f() and makes it executable.
template <class F>
cudaGraphExec_t captured(cudaStream_t stream, const F& f) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    f();
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&executable, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return executable;
}

/// Runs f(rank) on a thread for each rank, with that rank's device.
template <class F>
void on_ranks(int ranks, const F& f) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&f, rank] {
            CHECK(cudaSetDevice(rank) == cudaSuccess);
            f(rank);
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
}
