// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// A reference to a CUDA stream with another owner. The default streams are refused: they order unrelated work, and
/// which of them a null stream means depends on how a file was compiled.
class StreamRef {
  public:
    /// Refers to `stream`.
    /// @throws std::invalid_argument for a default stream, by its name
    explicit StreamRef(cudaStream_t stream, SourceLocation where = SourceLocation::current()) : stream_(stream) {
        if (stream == nullptr) { refuse("the null stream", where); }
        if (stream == cudaStreamLegacy) { refuse("cudaStreamLegacy", where); }
        if (stream == cudaStreamPerThread) { refuse("cudaStreamPerThread", where); }
    }

    cudaStream_t native() const noexcept { return stream_; }

    /// Records the event behind the stream's work so far.
    /// @throws Error, for example when stream and event are of different devices
    void record(const Event& event, SourceLocation where = SourceLocation::current()) const {
        detail::check(cudaEventRecord(event.native(), stream_), "cudaEventRecord", where);
    }
    /// Makes later work of the stream wait for the event's latest record; the host does not wait.
    /// @throws Error
    void wait(const Event& event, SourceLocation where = SourceLocation::current()) const {
        detail::check(cudaStreamWaitEvent(stream_, event.native(), 0), "cudaStreamWaitEvent", where);
    }
    /// Makes the host wait for all work given to the stream so far.
    /// @throws Error, also for earlier work of the device that failed
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        const detail::RelaxedCapture relaxed;
        detail::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", where);
    }

  private:
    [[noreturn]] static void refuse(std::string_view name, SourceLocation where) {
        throw_invalid_argument(where, "StreamRef: ", name,
                               " given, expected a stream made by cudaStreamCreateWithFlags or gpu::Stream; the "
                               "default streams are not used");
    }

    cudaStream_t stream_;
};

/// The priority of a stream: which stream's blocks a GPU begins first when several are ready.
enum class Priority { usual, greatest };

/// Owns a stream of the current device that does not wait for the default stream. Move-only. Its destructor does not
/// wait: the stream's work goes on.
class Stream {
  public:
    /// Creates a stream of this priority.
    /// @throws Error
    explicit Stream(Priority priority = Priority::usual, SourceLocation where = SourceLocation::current()) {
        int usual = 0;
        int greatest = 0;
        detail::check(cudaDeviceGetStreamPriorityRange(&usual, &greatest), "cudaDeviceGetStreamPriorityRange", where);
        cudaStream_t made = nullptr;
        detail::check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                                   priority == Priority::greatest ? greatest : usual),
                      "cudaStreamCreateWithPriority", where);
        stream_.reset(made);
    }

    /// Returns a reference to the stream.
    /// @throws std::invalid_argument when it was moved from
    StreamRef ref(SourceLocation where = SourceLocation::current()) const { return StreamRef(stream_.get(), where); }

  private:
    struct End {
        void operator()(cudaStream_t stream) const noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, End> stream_;
};

}  // namespace shardkit::gpu
