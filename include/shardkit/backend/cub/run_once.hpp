// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

namespace shardkit::gpu {

/// A work without index as one with an index.
template <class Work>
struct RunOnce {
    static_assert(std::is_trivially_copyable_v<Work>, "Kernels::run_once: the work must be trivially copyable");

    Work work;

    constexpr void operator()(std::uint64_t /*always 0*/) const { work(); }
};

}  // namespace shardkit::gpu
