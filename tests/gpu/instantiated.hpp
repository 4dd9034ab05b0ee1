// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

/// What the tests of ranks launch of the files that it is named for.
namespace instantiated {

namespace of = shardkit::nccl::detail;
using shardkit::bf16;
using shardkit::fp16;

template <class Out>
using SumsInto = of::KernelList<shardkit::engine::Reduce<double, Out>, shardkit::engine::Reduce<float, Out>,
                                shardkit::engine::Reduce<bf16, Out>, shardkit::engine::Reduce<fp16, Out>>;
/// instantiate_nccl.cu: the sums over ranks of the NCCL engine.
using Sums = decltype(SumsInto<double>{} + SumsInto<float>{} + SumsInto<bf16>{} + SumsInto<fp16>{});

/// instantiate_kernels_for.cu: of trainers, with gathers of codes and with Muon.
using Trainers =
    decltype(of::training_kernels<shardkit::Precision<shardkit::e4m3, float>, shardkit::rules::AdamWRule>() +
             of::training_kernels<shardkit::Precision<shardkit::block_int8, float>, shardkit::rules::AdamWRule>() +
             of::training_kernels<shardkit::DefaultPrecision<float>, shardkit::rules::MuonRule>());

/// Makes their launches, when it is explicitly instantiated.
template <class List>
struct Launched {
    static void calls() { static_cast<void>(List::template In<shardkit::gpu::KernelLaunches>::calls()); }
};

}  // namespace instantiated
