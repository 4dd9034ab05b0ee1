// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/factored/adafactor.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/precision.hpp>

#include "instantiated.hpp"
#include "preload.hpp"

// Whole sets of kernels, as a split trainer asks for them; examples/cuda_trainer links with the one for fp32 and
// AdamW.

namespace sk = shardkit;

template struct sk::nccl::KernelsFor<sk::DefaultPrecision<sk::bf16>, sk::rules::SgdRule>;
template struct sk::nccl::AverageKernelsFor<sk::DefaultPrecision<sk::bf16>>;
template struct sk::nccl::AverageKernelsFor<sk::Precision<float, sk::bf16>, sk::DefaultPrecision<sk::bf16>>;
template struct sk::nccl::KernelsFor<sk::Precision<sk::fp16, sk::fp16, sk::fp16, double>, sk::rules::AdamWRule>;
// States in bf16 and in blocks of 8 bits.
template struct sk::nccl::KernelsFor<sk::DefaultPrecision<sk::bf16>,
                                     sk::rules::RuleIn<sk::rules::AdamWRule, sk::StateFormat::bf16>>;
template struct sk::nccl::KernelsFor<sk::DefaultPrecision<sk::bf16>,
                                     sk::rules::RuleIn<sk::rules::AdamWRule, sk::StateFormat::block8>>;
// Muon's matrices.
template struct sk::nccl::KernelsFor<sk::DefaultPrecision<sk::bf16>, sk::rules::MuonRule>;
// Sums over whole parameters.
template struct sk::nccl::KernelsFor<sk::DefaultPrecision<sk::bf16>, sk::rules::AdafactorRule>;
// Gathers of codes, and Muon in fp32.
template struct instantiated::Launched<instantiated::Trainers>;

void preload_trainers() { instantiated::Trainers::In<sk::gpu::KernelLaunches>::preload(); }
