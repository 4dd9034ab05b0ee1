// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/precision.hpp>

#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/optim/muon_training.hpp"
#include "../unit/sharded/coded_training.hpp"

// What the trainers of the tests launch: the library's kernels for the precisions that they train in, and what they
// give to Kernels::run_once, the user's own kernels.

using shardkit::bf16;
using shardkit::engine::RunOnce;
using step_trainer::Backward;
using step_trainer::Forward;

template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule>;
template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<bf16>, shardkit::rules::AdamWRule>;
template struct shardkit::gpu::KernelLaunches<
    RunOnce<Forward<float>>, RunOnce<Forward<bf16>>, RunOnce<Backward<float>>, RunOnce<Backward<bf16>>,
    RunOnce<step_trainer::Note>, RunOnce<coded_training::GiveGradient>, RunOnce<muon_training::GiveGradient>>;
