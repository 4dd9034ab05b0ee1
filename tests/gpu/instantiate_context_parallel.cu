// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/context_parallel/attention_kernels.hpp>
#include <shardkit/shardkit.hpp>

// What attention over cp gives to Kernels::for_each_index.

namespace sk = shardkit;
using shardkit::gpu::detail::DeviceLaunch;

#define FOR_EACH(...) \
    template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define ATTENTION(A)                          \
    FOR_EACH(sk::detail::AttendRow<A>)        \
    FOR_EACH(sk::detail::OutputDot<A>)        \
    FOR_EACH(sk::detail::QueryGradientRow<A>) \
    FOR_EACH(sk::detail::KeyValueGradientRow<A>)

ATTENTION(float)
ATTENTION(double)
