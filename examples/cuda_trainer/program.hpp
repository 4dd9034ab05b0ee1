// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "../common/attempt.hpp"
#include "inputs.hpp"
#include "job.hpp"
#include "options.hpp"

namespace cuda_trainer {

/// A program around train(options, text, gpu, job, report): reads the flags and the text, connects the processes,
/// prints. Rank 0 writes to `out`, every rank its errors to `errors`. Returns the exit status.
template <class Train>
int run_trainer(std::span<const char* const> arguments, std::FILE* out, std::FILE* errors, Train train) {
    const program::Failure failed = program::attempt([&] {
        const Options options = parse(arguments);
        if (options.help) {
            std::fputs(usage, out);
            return;
        }
        const auto launched = launcher();
        const std::size_t ranks = launched ? launched->world_size() : 1;
        if (options.batch % (ranks * options.microbatches) != 0) {
            throw InputError("--batch ", options.batch, ": expected a multiple of ", ranks, " ranks x ",
                             options.microbatches, " microbatches");
        }
        options.policy.require_fits("--policy", ranks);
        const std::vector<std::uint8_t> text = read_text(options);
        Gpu gpu(launched ? launched->device() : 0);
        Job job(launched);
        const bool prints = job.rank == 0;
        Report report;
        report.model_bytes = [&](std::size_t bytes) {
            if (!prints) { return; }
            std::fprintf(out, "model: %zu parameters; %s on %zu rank%s\n", options.shape.all(),
                         options.policy.text().c_str(), job.ranks, job.ranks == 1 ? "" : "s");
            std::fprintf(out, "device memory of parameters, gradients and optimizer, each rank: %zu bytes\n", bytes);
        };
        report.step = [&](std::size_t step, double loss) {
            if (!prints) { return; }
            std::fprintf(out, "step %zu/%zu  loss %.4f\n", step + 1, options.steps, loss);
            std::fflush(out);
        };
        const std::vector<float> losses = train(options, text, gpu, job, report);
        if (prints) {
            std::fprintf(out, "loss: %.4f first, %.4f last\n", static_cast<double>(losses.front()),
                         static_cast<double>(losses.back()));
        }
    });
    if (failed.code != EXIT_SUCCESS) { std::fprintf(errors, "cuda_trainer: %s\n", failed.text.c_str()); }
    return failed.code;
}

}  // namespace cuda_trainer
