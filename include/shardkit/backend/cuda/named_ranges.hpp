// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !defined(SHARDKIT_NO_NVTX) && __has_include(<nvtx3/nvToolsExt.h>)

#include <cstdint>

#include <nvtx3/nvToolsExt.h>

namespace shardkit::gpu::detail {

/// Names the host's work for NVTX: a profiler shows under these names what the host gave to streams, and when that
/// work ran. Without a profiler, a call is the test of a pointer.
struct NamedRanges {
    static void push(const char* name) noexcept { static_cast<void>(nvtxRangePushA(name)); }
    static void pop() noexcept { static_cast<void>(nvtxRangePop()); }
    static std::uint64_t start(const char* name) noexcept { return nvtxRangeStartA(name); }
    static void end(std::uint64_t started) noexcept { nvtxRangeEnd(started); }
};

}  // namespace shardkit::gpu::detail

#define SHARDKIT_HAS_NVTX

#endif
