// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <shardkit/detail/not_copied.hpp>

namespace shardkit::gpu::detail {

/// Lets this thread make calls, until the end of the scope, that a capture forbids because they may be unsafe in it:
/// to wait for or ask about work outside of it. Otherwise such a call fails and spoils every capture of mode global,
/// whichever thread began it. What is captured must still not be waited for.
class RelaxedCapture : shardkit::detail::NotCopied {
  public:
    RelaxedCapture() noexcept { exchange(); }
    ~RelaxedCapture() { exchange(); }

  private:
    void exchange() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace shardkit::gpu::detail
