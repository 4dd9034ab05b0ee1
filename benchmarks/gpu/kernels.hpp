// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/precision.hpp>

namespace benchmarks::gpu {

namespace engine = shardkit::engine;
namespace rules = shardkit::rules;
using shardkit::bf16;
using shardkit::fp16;

/// Kernels one by one, and sums of the collectives.
template <class Rule, class T>
using UpdatesOf = engine::RuleUpdates<Rule, shardkit::detail::UpdateTypes<float, T, T>>;
using Alone = shardkit::nccl::detail::KernelList<
    UpdatesOf<rules::AdamWRule, bf16>, UpdatesOf<rules::SgdRule, float>, UpdatesOf<rules::SgdRule, bf16>,
    engine::NormPartial<float>, engine::NormPartial<bf16>, engine::Convert<float, bf16>, engine::Convert<bf16, float>,
    engine::Accumulate<float, float>, engine::Accumulate<bf16, float>,
    engine::CopyTensors<float, engine::TensorCopy::pack>, engine::CopyTensors<bf16, engine::TensorCopy::pack>,
    engine::CopyTensors<float, engine::TensorCopy::unpack>, engine::CopyTensors<bf16, engine::TensorCopy::unpack>,
    engine::Reduce<double, double>, engine::Reduce<float, float>, engine::Reduce<bf16, bf16>,
    engine::Reduce<fp16, fp16>>;
template <class P>
using Steps = decltype(shardkit::nccl::detail::training_kernels<P, rules::AdamWRule>());

/// All that the benchmarks give to a GPU.
using Kernels = decltype(Alone{} + Steps<shardkit::DefaultPrecision<float>>{} +
                         Steps<shardkit::DefaultPrecision<bf16>>{});

}  // namespace benchmarks::gpu
