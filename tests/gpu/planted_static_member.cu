// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/launch.cuh>

#include "../unit/backend/cub/multiply.hpp"

// A launch that only a static member's value names: nvcc 13.0 makes no device code for it, and check_symbols.py must
// say so.

namespace {

template <class Work>
struct Launch {
    using Call = void (shardkit::gpu::detail::DeviceLaunch::*)(std::uint64_t, const Work&, std::string_view) const;
    static inline const Call call = &shardkit::gpu::detail::DeviceLaunch::operator()<Work>;
};

}  // namespace

template struct Launch<shardkit::gpu::detail::RunOnce<shardkit::test::Multiply>>;
