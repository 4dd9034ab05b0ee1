// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.cuh>
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>

#include "../../examples/train_gpt/device/kernels.cuh"

// The kernels of check_machine_code.py, compiled as a user's build is, optimised and with multiply-adds fused: all
// that training launches with AdamW in fp32, in bf16 with fp32 masters, and with gathers of codes, and with Muon in
// fp32, as KernelsFor has them (what is launched beside them is refused by name), and some more whose speed counts:
// SGD, and states in bf16 and in blocks, as DefaultPrecision launches them; and those of the model of
// examples/train_gpt. With PLANTED only two, in which the check must find what was planted.

using namespace shardkit;
using namespace shardkit::gpu::detail;
using shardkit::detail::KnownRuleUpdate;

#define LAUNCH(...) template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define ALONE_AND_BATCHED(...) LAUNCH(__VA_ARGS__) LAUNCH(BatchPass<__VA_ARGS__>)
#define NORM(T)                                                                                          \
    template void shardkit::gpu::detail::norm_partial(const shardkit::gpu::TimelineRef&,                 \
                                                      std::span<const engine::NormPiece<T>>, IndexRange, \
                                                      const double*, double*);

using InBf16 = rules::RuleIn<rules::AdamWRule, StateFormat::bf16>::StateStorage;
using InBlocks = rules::RuleIn<rules::AdamWRule, StateFormat::block8>::StateStorage;

LAUNCH(PackPass<float, engine::TensorCopy::pack>)
#ifdef PLANTED
LAUNCH(train_gpt::EachRow<train_gpt::LayerNorm<float, float>>)
#else
template struct train_gpt::PassKernels<float>;
template struct train_gpt::PassKernels<bf16>;
LAUNCH(PackPass<float, engine::TensorCopy::unpack>)
LAUNCH(PackPass<bf16, engine::TensorCopy::pack>)
LAUNCH(PackPass<bf16, engine::TensorCopy::unpack>)
template struct nccl::KernelsFor<DefaultPrecision<float>, rules::AdamWRule>;
template struct nccl::KernelsFor<DefaultPrecision<bf16>, rules::AdamWRule>;
template struct nccl::KernelsFor<Precision<e4m3, bf16>, rules::AdamWRule>;
template struct nccl::KernelsFor<Precision<block_int8, bf16>, rules::AdamWRule>;
ALONE_AND_BATCHED(UpdatePass<KnownRuleUpdate<rules::SgdUpdate<float>>, float, float, float, 1>)
ALONE_AND_BATCHED(UpdatePass<KnownRuleUpdate<rules::SgdUpdate<float>>, float, bf16, float, 1>)
ALONE_AND_BATCHED(UpdatePass<KnownRuleUpdate<rules::AdamWUpdate<float>>, float, bf16, float, 2, InBf16>)
ALONE_AND_BATCHED(UpdatePass<KnownRuleUpdate<rules::AdamWUpdate<float>>, bf16, bf16, float, 2, InBf16>)
ALONE_AND_BATCHED(BlockUpdatePass<KnownRuleUpdate<rules::AdamWUpdate<float>>, float, bf16, float, 2, InBlocks>)
ALONE_AND_BATCHED(BlockUpdatePass<KnownRuleUpdate<rules::AdamWUpdate<float>>, bf16, bf16, float, 2, InBlocks>)
template struct nccl::KernelsFor<DefaultPrecision<float>, rules::MuonRule>;
LAUNCH(ConvertPass<float, bf16>)
NORM(bf16)
#endif
