// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "../unit/backend/cub/machine.hpp"

namespace shardkit::test {

/// A stream of the current GPU, and memory there.
class GpuMachine {
  public:
    using Machine = test::Machine<gpu::Kernels>;

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
