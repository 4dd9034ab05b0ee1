// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>
#include <shardkit/backend/cuda/stream_ref.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// The owner of a stream of the current device that does not wait for the default stream. Move-only. Its end does
/// not wait: work given to it runs on.
class Stream {
  public:
    /// @throws Error
    explicit Stream(SourceLocation where = SourceLocation::current()) {
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", where);
    }
    Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
        if (stream_ != nullptr) { static_cast<void>(cudaStreamDestroy(stream_)); }
    }

    /// @throws std::invalid_argument when it was moved from
    StreamRef ref(SourceLocation where = SourceLocation::current()) const { return StreamRef(stream_, where); }

  private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace shardkit::gpu
