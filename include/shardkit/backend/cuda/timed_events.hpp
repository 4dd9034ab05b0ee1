// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu::detail {

/// Times of points in the work of the current device's streams, by CUDA's events.
class TimedEvents final : public engine::WorkTimes {
  public:
    /// Creates the events.
    /// @throws Error
    TimedEvents(std::size_t count, SourceLocation where) : taken_(count) {
        events_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) { events_.emplace_back(EventTime::taken, where); }
    }

    void take(engine::WorkQueue& queue, std::size_t i) noexcept override {
        const cudaError_t code = cudaEventRecord(native(i), queue.native());
        taken_[i] = 1;
        if (code == cudaSuccess) { return; }
        static_cast<void>(cudaGetLastError());
        failure_ = code;
    }
    double seconds(std::size_t from, std::size_t to, SourceLocation where) const override {
        check(failure_, "cudaEventRecord", where);
        if (taken_[to] == 0) { return 0; }
        const RelaxedCapture relaxed;
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, native(from), native(to)), "cudaEventElapsedTime", where);
        return static_cast<double>(milliseconds) / 1e3;
    }

  private:
    cudaEvent_t native(std::size_t i) const noexcept { return events_[i].native(); }

    std::vector<Event> events_;
    std::vector<char> taken_;
    cudaError_t failure_ = cudaSuccess;
};

}  // namespace shardkit::gpu::detail
