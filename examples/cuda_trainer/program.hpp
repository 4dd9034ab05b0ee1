// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/backend/nccl/launcher.hpp>

#include "../common/attempt.hpp"
#include "../common/input_file.hpp"
#include "job.hpp"
#include "options.hpp"

namespace cuda_trainer {

/// What the options name.
/// @throws InputError when it cannot be read, or is too short for one sequence
inline std::vector<Token> read_text(const Options& options) {
    const std::string text = program::bytes_of(program::open_file("--text", options.text));
    program::require(text.size() > options.model.sequence, "--text ", options.text, ": it has ", text.size(),
                     " bytes, expected at least ", options.model.sequence + 1, ", one more than --sequence");
    const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
}

/// A program around train(options, text, job, report), with main's arguments: reads the flags and the text, connects
/// the processes, prints. Rank 0 writes to `out`, every rank its errors to `errors`. Returns the exit status.
template <class Train>
int run_trainer(int count, const char* const* words, std::FILE* out, std::FILE* errors, Train train) {
    const program::Failure failed = program::attempt([&] {
        // This process among those of its job, as a launcher tells it in the environment; nothing where it is alone.
        std::optional<shardkit::nccl::Launcher> launcher;
        if (std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr) {
            launcher = shardkit::nccl::Launcher::from_environment();
        }
        std::string help;
        const auto options = parse(count, words, launcher ? launcher->world_size() : 1, help);
        if (!options) {
            std::fputs(help.c_str(), out);
            return;
        }
        const std::vector<Token> text = read_text(*options);
        // Rank 0 makes an id, and sends it to the others.
        const auto shared =
            launcher ? launcher->unique_id(std::chrono::minutes(10)) : shardkit::nccl::UniqueId::create();
        ncclUniqueId id;
        std::memcpy(&id, shared.bytes.data(), sizeof id);
        Job job(launcher ? launcher->device() : 0, id, launcher ? launcher->rank() : 0,
                launcher ? launcher->world_size() : 1);
        const bool prints = job.rank == 0;
        const Report report{
            [&](std::size_t bytes) {
                if (!prints) { return; }
                std::fprintf(out,
                             "device memory of parameters, gradients and optimizer, each rank: %zu bytes; %s on %zu "
                             "rank%s\n",
                             bytes, options->policy.text().c_str(), job.ranks, job.ranks == 1 ? "" : "s");
            },
            [&](std::size_t step, double loss) {
                if (!prints) { return; }
                std::fprintf(out, "step %zu/%zu  loss %.4f\n", step + 1, options->steps, loss);
                std::fflush(out);
            }};
        const std::vector<double> losses = train(*options, text, job, report);
        if (prints) { std::fprintf(out, "loss: %.4f first, %.4f last\n", losses.front(), losses.back()); }
    });
    if (failed.code != EXIT_SUCCESS) { std::fprintf(errors, "cuda_trainer: error: %s\n", failed.text.c_str()); }
    return failed.code;
}

}  // namespace cuda_trainer
