// SPDX-License-Identifier: Apache-2.0
#ifndef __CUDA_ARCH__  // all device code is in other files: nvcc's pass for the device reads nothing here
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../../common/place.hpp"
#include "../program/plan_summary.hpp"
#include "train.hpp"

namespace train_gpt {

PlanSummary plan_on_nccl(const Options& options) {
    return make_plan(options, sk::nccl::traits_of(sk::nccl::Options{}, options.mesh.world()),
                     DeviceProducts::workspace_bytes);
}

Results train_on_nccl(const Job& job) {
    Results results(job.options.steps - job.start.first_step);
    sk::nccl::World world = program::Place::is_launched() ? sk::nccl::World(sk::nccl::Launcher::from_environment())
                                                          : sk::nccl::World(sk::nccl::UniqueId::create(), 1, 0);
    const auto& mesh = job.options.mesh;
    sk::nccl::run(
        sk::ExpertMesh(sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), job.options.ep), world,
        [&](sk::Rank& rank) {
            const auto train = [&](auto element) {
                train_on_device<decltype(element)>(rank, job, DeviceProducts::workspace_bytes,
                                                   rank.rank() == 0 ? &results : nullptr,
                                                   [&] { world.keep_pace(rank.compute_stream()); });
            };
            job.options.dtype == Dtype::bf16 ? train(sk::bf16{}) : train(float{});
        },
        rank_options(job.chosen));
    return results;
}

}  // namespace train_gpt
#endif
