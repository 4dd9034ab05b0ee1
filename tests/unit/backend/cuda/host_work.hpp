// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

/// Host functions as the "kernels" of a stream. Lives until the streams that run them are done.
class HostWork {
  public:
    /// `stream`: a StreamRef or a TimelineRef.
    template <class StreamType>
    void enqueue(const StreamType& stream, std::function<void()> work) {
        works_.push_back(std::move(work));
        REQUIRE(cudaLaunchHostFunc(stream.native(), &run, &works_.back()) == cudaSuccess);
    }

  private:
    static void run(void* work) { (*static_cast<std::function<void()>*>(work))(); }
    std::deque<std::function<void()>> works_;
};
