// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/moving_average.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verify.hpp>

// What the core gives to Kernels::run_once: the scalars of norms and steps.

namespace sk = shardkit;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::gpu::detail::RunOnce;

#define RUN(...) \
    template void DeviceLaunch::operator()(std::uint64_t, const RunOnce<__VA_ARGS__>&, std::string_view) const;

RUN(sk::detail::BeginNorm)
RUN(sk::detail::FinishNorm)
RUN(sk::detail::KeepNonfinite)
RUN(sk::detail::BeginInfinityNorm)
RUN(sk::detail::FoldPartialNorms)
RUN(sk::detail::FoldDigests)
RUN(sk::detail::SetMovingAverage)
RUN(sk::detail::BeginStep)
RUN(sk::detail::SetOptions)
// Alone, and behind the launch that begins a step.
#define BEGIN(Rule)                                                                                                  \
    template void DeviceLaunch::operator()(std::uint64_t, const sk::detail::BeginUpdatesAs<Rule>&, std::string_view) \
        const;                                                                                                       \
    template void DeviceLaunch::behind(const sk::detail::BeginStep&, std::uint64_t,                                  \
                                       const sk::detail::BeginUpdatesAs<Rule>&, std::string_view) const;
BEGIN(sk::rules::AdamWRule)
BEGIN(sk::rules::SgdRule)
BEGIN(sk::rules::LionRule)

// And to Kernels::for_each_index: first values.
#define FILL(...)                                                                                   \
    template void DeviceLaunch::operator()(std::uint64_t, const sk::detail::FillWork<__VA_ARGS__>&, \
                                           std::string_view) const;
FILL(float, sk::detail::RoundToNearest<float>, sk::InitialValues)
FILL(sk::bf16, sk::detail::RoundToNearest<float>, sk::InitialValues)
#define NORMS(...)                                                                                         \
    template void DeviceLaunch::operator()(std::uint64_t, const sk::detail::AddPartialNorms<__VA_ARGS__>&, \
                                           std::string_view) const;
NORMS(float)
NORMS(sk::bf16)
NORMS(double)
// And to the digests that replicas compare, by the size of elements.
#define DIGESTS(...)                                                                                      \
    template void DeviceLaunch::operator()(std::uint64_t, const sk::detail::DigestElements<__VA_ARGS__>&, \
                                           std::string_view) const;
DIGESTS(std::uint8_t)
DIGESTS(std::uint16_t)
DIGESTS(std::uint32_t)
DIGESTS(std::uint64_t)
