// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>

#include "../../examples/train_gpt/device/train.hpp"
#include "../gpt/trainings.hpp"
#include "../unit/backend/nccl/paced_ranks.hpp"

/// The GPT on ranks that are threads, each with a GPU of the stand-in.
namespace device_training {

using namespace train_gpt;
using Engine = gpu_ranks::TypedEngine;
using paced_ranks::Pace;
using paced_ranks::Paces;

enum class Steps : std::uint8_t { plain, captured };

inline constexpr std::size_t workspace_bytes = 4096;

inline PlanSummary planned(Options options, const sk::nccl::Options& of_world = gpu_ranks::patient()) {
    options.engine = EngineKind::nccl;
    return make_plan(options, sk::nccl::traits_of(of_world, options.mesh.world()), workspace_bytes);
}

/// options.steps steps on one rank, as a program for GPUs makes them.
template <class T, class Report>
std::vector<double> train_on(sk::Context<Engine>& rank, const Options& options, Steps how, const Report& report,
                             const Start& start = {}) {
    Options each = options;
    each.every = 1;
    each.graph = how == Steps::captured;
    Job job{each, test::corpus()};
    job.start = start;
    job.chosen = planned(options).chosen;
    return train_on_device<T>(rank, job, workspace_bytes, {report, {}, {}});
}
/// The same on a World.
template <class T, class Report>
std::vector<double> train_in(sk::nccl::World& world, const Options& options, Steps how, const Report& report) {
    using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
    sk::Rank<Engine, Mesh> rank(Mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp), gpu_ranks::TypedComm(world),
                                rank_options(planned(options).chosen), world.streams());
    return train_on<T>(rank, options, how, report);
}

/// On all ranks of the options' mesh, whose losses are the same.
template <class T>
std::vector<double> train(const Options& options, Steps how = Steps::plain,
                          Paces paces = {Pace::lazy, Pace::eager, Pace::lazy}) {
    const sk::DeviceMesh mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp);
    std::vector<std::vector<double>> losses(mesh.grid().size());
    CHECK(paced_ranks::run<Engine>(
              mesh, paces, rank_options(planned(options).chosen), [&](auto& rank, const auto& /*streams*/) {
                  losses[rank.rank()] = train_on<T>(rank, options, how, [](std::size_t, double) {});
              }) == "");
    for (const auto& of_rank : losses) { CHECK(of_rank == losses.front()); }
    return losses.front();
}

inline double worst(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) { most = larger(most, std::abs(a[i] - b[i])); }
    return most;
}

}  // namespace device_training
