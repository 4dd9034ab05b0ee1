// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !defined(SHARDKIT_NO_NVTX) && __has_include(<nvtx3/nvToolsExt.h>)

#include <cstdint>

#include <nvtx3/nvToolsExt.h>

#include <shardkit/comm/stream.hpp>

namespace shardkit::gpu::detail {

/// Names the host's work for NVTX: a profiler shows under these names what the host gave to streams, and when that
/// work ran. Without a profiler, a call is the test of a pointer.
class NamedRanges final : public engine::WorkRanges {
  public:
    std::uint64_t start(const char* name) const noexcept override { return nvtxRangeStartA(name); }
    void end(std::uint64_t started) const noexcept override { nvtxRangeEnd(started); }
};
inline constexpr NamedRanges named_ranges{};

}  // namespace shardkit::gpu::detail

#define SHARDKIT_HAS_NVTX

#endif
