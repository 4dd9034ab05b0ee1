// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>

#include "../../common/output_file.hpp"
#include "../program/command_line.hpp"
#include "../program/plan_summary.hpp"
#include "../program/start.hpp"
#include "train.hpp"

namespace train_gpt {

/// The program, on GPUs, with main's arguments. Rank 0 writes to `out`, every rank its errors to
/// `errors`. Returns the exit status.
inline int device_program(int count, const char* const* words, std::FILE* out, std::FILE* errors) {
    try {
        const bool alone = std::getenv("RANK") == nullptr && std::getenv("WORLD_SIZE") == nullptr;
        const std::optional<sk::nccl::Launcher> launcher =
            alone ? std::nullopt : std::optional(sk::nccl::Launcher::from_environment());
        const bool reports = !launcher || launcher->rank() == 0;
        std::string help;
        const std::optional<Options> parsed =
            parse_gpu_command_line(count, words, help, launcher ? launcher->world_size() : 1);
        if (!parsed) {
            if (reports) { std::fputs(help.c_str(), out); }
            return EXIT_SUCCESS;
        }
        const Options& options = *parsed;
        const PlanSummary plan = make_plan(options, sk::nccl::traits_of(sk::nccl::Options{}, options.mesh.world()),
                                           DeviceProducts::workspace_bytes);
        const Inputs inputs = read_inputs(options);
        const program::OutputFile trace("--trace", reports ? options.trace : std::string());
        if (reports) { std::fputs((inputs.start.notes + describe_plan(options, plan)).c_str(), out); }
        if (options.action == Options::Action::plan) { return EXIT_SUCCESS; }
        Job job{options, inputs.text.tokens};
        job.chosen = plan.chosen;
        job.identity = inputs.identity;
        job.start = inputs.start;
        job.after_step = [&](const StepReport& report) {
            std::fprintf(out, "step %zu/%zu  loss %.4f", report.step + 1, options.steps, report.loss);
            if (report.grad_norm) { std::fprintf(out, "  norm %.3f", *report.grad_norm); }
            if (report.step > job.start.first_step) {
                std::fprintf(out, "  %.0f tokens/s", report.tokens_per_second);
            }
            std::fputs("\n", out);
            std::fflush(out);
        };
        Results results(options.steps - job.start.first_step);
        sk::nccl::World world =
            launcher ? sk::nccl::World(*launcher) : sk::nccl::World(sk::nccl::UniqueId::create(), 1, 0);
        const auto& mesh = options.mesh;
        sk::nccl::run(
            sk::ExpertMesh(sk::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), options.ep), world,
            [&](auto& rank) {
                const auto train = [&](auto element) {
                    train_on_device<decltype(element)>(rank, job, DeviceProducts::workspace_bytes,
                                                       reports ? &results : nullptr,
                                                       [&] { world.keep_pace(rank.compute_stream()); });
                };
                options.dtype == Dtype::bf16 ? train(sk::bf16{}) : train(float{});
            },
            rank_options(job.chosen));
        if (!reports) { return EXIT_SUCCESS; }
        if (!results.trace.empty()) { trace.write(results.trace); }
        if (!results.losses.empty()) {
            std::fprintf(out, "loss: %.4f first, %.4f last\n", results.losses.front(), results.losses.back());
        }
        if (!results.saved.empty()) { std::fprintf(out, "saved: %s\n", results.saved.c_str()); }
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(errors, "train_gpt: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}

}  // namespace train_gpt
