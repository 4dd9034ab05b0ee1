// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.cuh>
#include <shardkit/backend/nccl/combined.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>

// The kernels whose speed counts, for check_machine_code.py: compiled as a user's build is, optimised and with
// multiply-adds fused. With PLANTED only one, in which the check must find what was planted.

using namespace shardkit;
using namespace shardkit::gpu::detail;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define NORM(T)                                        \
    template void shardkit::gpu::detail::norm_partial( \
        const shardkit::gpu::TimelineRef&, std::span<const NormPiece<T>>, IndexRange, const double*, double*);

using InBf16 = RuleIn<AdamWRule, StateFormat::bf16>::StateStorage;
using InBlocks = RuleIn<AdamWRule, StateFormat::block8>::StateStorage;

LAUNCH(PackPass<float, PackDirection::pack>)
#ifndef PLANTED
LAUNCH(PackPass<float, PackDirection::unpack>)
LAUNCH(PackPass<bf16, PackDirection::pack>)
LAUNCH(PackPass<bf16, PackDirection::unpack>)
LAUNCH(UpdatePass<AdamWUpdate<float>, float, float, float, 2>)
LAUNCH(UpdatePass<AdamWUpdate<float>, float, bf16, bf16, 2>)
// What a step launches by default: fp32 gradients, and groups below 32 MiB together.
LAUNCH(UpdatePass<AdamWUpdate<float>, float, bf16, float, 2>)
LAUNCH(BatchPass<UpdatePass<AdamWUpdate<float>, float, float, float, 2>>)
LAUNCH(BatchPass<UpdatePass<AdamWUpdate<float>, float, bf16, float, 2>>)
// With stochastic rounding of parameters, and split ones.
LAUNCH(BatchPass<UpdatePass<AdamWUpdate<float>, bf16, bf16, float, 2>>)
LAUNCH(UpdatePass<SgdUpdate<float>, float, float, float, 1>)
LAUNCH(UpdatePass<SgdUpdate<float>, float, bf16, bf16, 1>)
LAUNCH(UpdatePass<AdamWUpdate<float>, float, bf16, bf16, 2, InBf16>)
LAUNCH(BlockUpdatePass<AdamWUpdate<float>, float, bf16, bf16, 2, InBlocks>)
LAUNCH(FillPass<float>)
LAUNCH(ScalePass<float>)
LAUNCH(ConvertPass<float, bf16>)
LAUNCH(ConvertPass<bf16, float>)
LAUNCH(ConvertRowsPass<bf16, float>)
LAUNCH(AccumulatePass<float, float>)
LAUNCH(AccumulatePass<bf16, float>)
LAUNCH(AccumulatePairPass<float, float>)
LAUNCH(AccumulatePairPass<bf16, float>)
LAUNCH(nccl::detail::AddedInOrder<bf16, float>)
LAUNCH(QuantizePass<float, 64>)
LAUNCH(DequantizePass<float, 64>)
NORM(float)
NORM(bf16)
#endif
