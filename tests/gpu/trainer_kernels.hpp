// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/optim/muon_training.hpp"
#include "../unit/sharded/coded_training.hpp"

/// What the trainers of the tests launch: the library's kernels for the precisions that they train in, and what they
/// give to Kernels::run_once, the user's own kernels.
namespace trainer_kernels {

namespace of = shardkit::nccl::detail;
using shardkit::bf16;
using step_trainer::Backward;
using step_trainer::Forward;

using Own =
    of::OncePer<Forward<double>, Forward<float>, Forward<bf16>, Backward<double>, Backward<float>, Backward<bf16>,
                step_trainer::Note, coded_training::GiveGradient, muon_training::GiveGradient>;
template <class T>
using AdamW = decltype(of::training_kernels<shardkit::DefaultPrecision<T>, shardkit::rules::AdamWRule>());
using All = decltype(Own{} + AdamW<double>{} + AdamW<float>{} + AdamW<bf16>{});

}  // namespace trainer_kernels
