// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.cuh>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

// The kernels that --use_fast_math could spoil, for check_fast_math.py: what decides whether a step overflowed, what
// rounds, and what divides. With PLANTED the norm alone, in which the check must find what was planted.

using namespace shardkit;
using namespace shardkit::gpu::detail;
using shardkit::detail::KnownRuleUpdate;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define NORM(T)                                                                                          \
    template void shardkit::gpu::detail::norm_partial(const shardkit::gpu::TimelineRef&,                 \
                                                      std::span<const engine::NormPiece<T>>, IndexRange, \
                                                      const double*, double*);

NORM(float)
NORM(bf16)
NORM(fp16)
NORM(double)
#ifndef PLANTED
LAUNCH(RunOnce<shardkit::detail::BeginNorm>)
LAUNCH(RunOnce<shardkit::detail::FinishNorm>)
LAUNCH(RunOnce<shardkit::detail::BeginStep>)
LAUNCH(ConvertPass<float, bf16>)
LAUNCH(ConvertPass<float, fp16>)
LAUNCH(ConvertPass<fp16, float>)
LAUNCH(UpdatePass<KnownRuleUpdate<rules::SgdUpdate<float>>, float, float, float, 1>)
LAUNCH(UpdatePass<KnownRuleUpdate<rules::SgdUpdate<float>>, bf16, bf16, bf16, 1>)
LAUNCH(UpdatePass<KnownRuleUpdate<rules::LionUpdate<float>>, float, bf16, bf16, 1>)
LAUNCH(UpdatePass<KnownRuleUpdate<rules::AdamWUpdate<float>>, float, float, float, 2>)
LAUNCH(UpdatePass<KnownRuleUpdate<rules::AdamWUpdate<double>>, double, double, double, 2>)
#endif
