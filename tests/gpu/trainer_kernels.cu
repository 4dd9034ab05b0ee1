// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>

#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/optim/muon_training.hpp"
#include "../unit/sharded/coded_training.hpp"

// What the trainers of the tests give to Kernels::run_once: the user's own kernels.

using shardkit::bf16;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::gpu::detail::RunOnce;
using step_trainer::Backward;
using step_trainer::Forward;
using step_trainer::Note;

#define RUN(...) \
    template void DeviceLaunch::operator()(std::uint64_t, const RunOnce<__VA_ARGS__>&, std::string_view) const;

RUN(Forward<double>)
RUN(Forward<float>)
RUN(Forward<bf16>)
RUN(Backward<double>)
RUN(Backward<float>)
RUN(Backward<bf16>)
RUN(Note)
RUN(coded_training::GiveGradient)
RUN(muon_training::GiveGradient)
