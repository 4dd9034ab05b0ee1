// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "../common/workload.hpp"

namespace benchmarks::kernels {

/// A kernel with its buffers.
class KernelWorkload : public Workload {
  public:
    /// Gives one call to the stream; waits for nothing.
    virtual void once() = 0;
    /// That are packed; 0 for what packs nothing.
    virtual std::size_t tensors() const noexcept { return 0; }
};

}  // namespace benchmarks::kernels
