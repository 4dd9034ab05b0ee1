// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "../common/input_error.hpp"
#include "../common/policy_choice.hpp"
#include "../common/read_flag.hpp"
#include "../train_gpt/model/config.hpp"

namespace cuda_trainer {

using program::InputError;
using train_gpt::Token;

struct Options {
    train_gpt::ModelConfig model{.head = train_gpt::HeadKind::untied};
    std::size_t steps = 200;
    std::size_t batch = 32;  ///< sequences of a step, over all ranks and microbatches
    std::size_t microbatches = 1;
    std::size_t every = 20;  ///< steps between two lines of output
    double learning_rate = 1e-3;
    double clip = 0;  ///< greatest norm of the gradients; 0: any
    std::uint64_t seed = 1;
    std::string text;
    program::PolicyChoice policy{program::PolicyKind::no_shard};
    bool schedule = false;  ///< all steps but the first follow the first one's schedule
    bool graph = false;     ///< all steps but the first are launches of one CUDA graph

    /// Of one rank.
    train_gpt::BatchShape pass(std::size_t ranks) const { return {batch / (ranks * microbatches), model.sequence}; }
};

/// What a run tells while it trains.
struct Report {
    /// Parameters, gradients, optimizer states and buffers of this rank, on the device; the activations are not in
    /// it.
    std::function<void(std::size_t bytes)> model_bytes;
    /// Every Options::every steps and at the last one, on every rank.
    std::function<void(std::size_t step, double loss)> step;
};

/// Reads main's arguments; nothing where they ask for help, whose text is then in `help`.
/// @throws InputError that names the flag, what was given and what was expected
inline std::optional<Options> parse(int count, const char* const* words, std::size_t ranks, std::string& help) {
    using program::into, program::into_count, program::into_name;
    constexpr std::uint64_t many = 1'000'000'000;
    Options o;
    program::Flags flags(
        "Trains a GPT on GPUs: one, or those of the processes that a launcher such as torchrun starts.",
        "cuda_trainer");
    flags.add("--text", "FILE", "what to learn, any bytes (needed)", into(o.text, program::parse_file));
    flags.add("--steps", "N", "200", into_count(o.steps, 1, many));
    flags.add("--batch", "N", "32: sequences of a step, a multiple of ranks x microbatches",
              into_count(o.batch, 1, 1'000'000));
    flags.add("--microbatches", "N", "1: passes of each rank in a step", into_count(o.microbatches, 1, many));
    flags.add("--sequence", "N", "64: bytes of a sequence", into_count(o.model.sequence, 1));
    flags.add("--width", "N", "128", into_count(o.model.width, 1));
    flags.add("--layers", "N", "4", into_count(o.model.layers, 1));
    flags.add("--heads", "N", "4", into_count(o.model.heads, 1));
    flags.add("--lr", "X", "0.001", into(o.learning_rate, program::parse_not_negative));
    flags.add("--clip", "X", "0: greatest norm of the gradients, 0 for any",
              into(o.clip, program::parse_not_negative));
    flags.add("--policy", "NAME", std::string(program::policy_words), into(o.policy, program::parse_policy));
    flags.add("--schedule", "on|off",
              "off: on makes all steps but the first gather a window ahead, and reduce beside the next backward pass",
              into_name(o.schedule, program::switch_names));
    flags.add("--graph", "on|off", "off: on makes all steps but the first launches of one CUDA graph",
              into_name(o.graph, program::switch_names));
    flags.add("--seed", "N", "1: decides the first parameters and the order of the text", into_count(o.seed, 0));
    flags.add("--every", "N", "20: steps between two lines of output", into_count(o.every, 1, many));
    if (!flags.parse(count, words, help)) { return std::nullopt; }
    program::require(!o.text.empty(), "--text FILE is missing: expected a file to learn");
    program::require(o.batch % (ranks * o.microbatches) == 0, "--batch ", o.batch, ": expected a multiple of ", ranks,
                     " ranks x ", o.microbatches, " microbatches");
    o.policy.require_fits("--policy", ranks);
    try {
        train_gpt::validate(o.model, o.pass(ranks).batch);
    } catch (const std::invalid_argument& error) { throw InputError(error.what()); }
    return o;
}

}  // namespace cuda_trainer
