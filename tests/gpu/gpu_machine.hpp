// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/source_location.hpp>

#include "../unit/backend/cub/machine.hpp"

namespace shardkit::test {

/// The kernels, and copies between the host's memory and a GPU's in the order of a stream.
struct GpuKernels : gpu::Kernels {
    template <class T>
    static void copy_in(const Stream& stream, std::span<const T> from, std::span<T> to) {
        stream.copy(from.data(), to.data(), from.size_bytes(), SourceLocation{});
    }
    template <class T>
    static void copy_out(const Stream& stream, std::span<const T> from, std::span<T> to) {
        copy_in(stream, from, to);
    }
};

/// A stream of the current GPU, and memory there.
class GpuMachine {
  public:
    using Machine = test::Machine<GpuKernels>;

    explicit GpuMachine(std::size_t bytes = std::size_t{64} << 20U)
        : timeline_(stream_.ref()),
          memory_(gpu::detail::device_bytes(bytes, stream_.ref())),
          machine_(timeline_.ref(), memory_.span()) {}

    Machine& machine() noexcept { return machine_; }
    gpu::TimelineRef stream() noexcept { return timeline_.ref(); }

  private:
    gpu::Stream stream_;
    gpu::Timeline timeline_;
    gpu::detail::OwnedBytes memory_;
    Machine machine_;
};

}  // namespace shardkit::test
