// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "job.hpp"
#include "report.hpp"
#include "text.hpp"

namespace cuda_trainer {

/// What the options ask of the job.
/// @throws InputError
inline void check_batch(const Options& options, std::size_t ranks) {
    if (options.batch % (ranks * options.microbatches) != 0) {
        throw InputError("--batch " + std::to_string(options.batch) + ": expected a multiple of " +
                         std::to_string(ranks) + " ranks x " + std::to_string(options.microbatches) +
                         " microbatches");
    }
}

/// A program around train(options, text, gpu, job, report): reads the flags and the text, connects the processes,
/// prints. Rank 0 writes to `out`, every rank its errors to `errors`. Returns the exit status.
template <class Train>
int program(std::span<const char* const> arguments, std::FILE* out, std::FILE* errors, Train train) {
    try {
        const Options options = parse(arguments);
        if (options.help) {
            std::fputs(usage, out);
            return EXIT_SUCCESS;
        }
        const Place place = Place::from_environment();
        check_batch(options, place.ranks);
        const std::vector<std::uint8_t> text = read_text(options.text, options.shape);
        Gpu gpu(device_of(place));
        Job job(place);
        const bool prints = job.rank == 0;
        Report report;
        report.model_bytes = [&](std::size_t bytes) {
            if (!prints) { return; }
            std::fprintf(out, "model: %zu parameters; %s on %zu rank%s\n", options.shape.all(),
                         options.policy.c_str(), job.ranks, job.ranks == 1 ? "" : "s");
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
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(errors, "cuda_trainer: %s\n", error.what());
        return EXIT_FAILURE;
    }
}

}  // namespace cuda_trainer
