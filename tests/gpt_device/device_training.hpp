// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/mesh/device_mesh.hpp>

#include "../../examples/train_gpt/device/trainer.hpp"
#include "../gpt/trainings.hpp"
#include "../unit/backend/nccl/captured_step.hpp"
#include "../unit/backend/nccl/paced_ranks.hpp"

/// The GPT on ranks that are threads, each with a GPU of the stand-in.
namespace device_training {

using namespace train_gpt;
using gpu_ranks::Engine;
using paced_ranks::Pace;
using paced_ranks::Paces;

inline constexpr std::size_t workspace_bytes = 4096;
enum class Steps : std::uint8_t { plain, captured };

/// options.steps steps; the losses of every rank are the same.
template <class T>
std::vector<double> train(const Options& options, Steps how = Steps::plain,
                          Paces paces = {Pace::lazy, Pace::eager, Pace::lazy}) {
    const sk::DeviceMesh mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp);
    std::vector<std::vector<double>> losses(mesh.grid().size());
    const std::string error = paced_ranks::run(mesh, paces, {}, [&](auto& rank, const auto& streams) {
        DeviceTrainer<Engine, T> trainer(rank, options, test::corpus(), workspace_bytes);
        std::optional<step_trainer::CapturedStep> graph;
        for (std::size_t step = 0; step < options.steps; ++step) {
            trainer.load(step);
            if (how == Steps::plain || step == 0) {
                trainer.step();
            } else {
                if (!graph) {
                    graph.emplace(streams, [&] { trainer.step(); });
                }
                graph->launch();
            }
            trainer.keep_losses(step);
        }
        losses[rank.rank()] = trainer.losses(options.steps);
    });
    CHECK(error == "");
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
