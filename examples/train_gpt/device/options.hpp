// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "../../common/input_error.hpp"
#include "../../common/mesh_extents.hpp"
#include "../../common/parse.hpp"
#include "../../common/policy_choice.hpp"
#include "../program/options.hpp"

namespace train_gpt {

/// What the program for GPUs is asked for: the training, of the same options as train_gpt's, and how it runs.
struct DeviceOptions {
    Options training;
    std::size_t every = 20;  ///< steps between two lines of output
    bool graph = false;      ///< all steps but the first are launches of one CUDA graph
    bool help = false;
};

inline constexpr const char* device_usage =
    "Trains train_gpt's model on GPUs, a process for each.\n"
    "  --text FILE          what to train on [this repository's headers and documentation]\n"
    "  --mesh DPxTPxCP      data x tensor x context parallel ranks [all processes x 1 x 1]\n"
    "  --policy NAME        no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard:N, "
    "hybrid_optimizer:N\n"
    "                       or secondary_shard:N [full_shard]\n"
    "  --steps N            [400]\n"
    "  --batch N            sequences of a step, over all ranks and microbatches [16]\n"
    "  --microbatches N     parts in which a rank works through its sequences [1]\n"
    "  --model NAME         124M, 350M or 1.5B: a size of GPT-2, whose values the flags behind it change\n"
    "  --vocabulary N       how many tokens there are [256, the bytes of a text]\n"
    "  --sequence N         tokens of a sequence [64]\n"
    "  --layers N           transformer blocks [4]\n"
    "  --width N            width of the residual stream [128]\n"
    "  --heads N            attention heads [4]\n"
    "  --head NAME          tied or untied [tied]\n"
    "  --sequence-parallel on|off  with tp: norms and residuals hold a part of the tokens [off]\n"
    "  --context NAME       with cp: ring or gather [ring]\n"
    "  --lr X               [1e-3]\n"
    "  --weight-decay X     of the matrices [0.01]\n"
    "  --clip X             largest norm of the gradients; 0 for any [1]\n"
    "  --graph on|off       all steps but the first are launches of one CUDA graph [off]\n"
    "  --seed N             decides first values and data order [1]\n"
    "  --every N            steps between two lines of output [20]\n"
    "One GPU unless RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set, as torchrun does.\n";

/// @throws InputError that names the flag, what was given and what was expected
inline void validate_for_ranks(const Options& o, std::size_t ranks) {
    const std::string mesh = o.mesh.describe();
    const auto require = [](bool holds, const std::string& given, const std::string& expected) {
        if (!holds) { throw program::InputError(given + ": expected " + expected); }
    };
    require(o.mesh.world() == ranks, "--mesh " + mesh,
            "as many ranks as there are processes, " + std::to_string(ranks));
    o.policy.require_fits("--policy", o.mesh.dp, mesh);
    require(o.batch % o.mesh.dp == 0 && o.sequences_per_rank() >= o.microbatches,
            "--batch " + std::to_string(o.batch),
            "a multiple of the " + std::to_string(o.mesh.dp) +
                " data-parallel ranks, with a sequence for each of --microbatches " + std::to_string(o.microbatches));
    require(o.model.heads % o.mesh.tp == 0 && o.model.rows_of_vocabulary() % o.mesh.tp == 0, "--mesh " + mesh,
            "tensor-parallel ranks that divide --heads " + std::to_string(o.model.heads) + " and the vocabulary of " +
                std::to_string(o.model.rows_of_vocabulary()));
    require(o.model.sequence % o.split().token_unit() == 0, "--sequence " + std::to_string(o.model.sequence),
            "a multiple of " + std::to_string(o.split().token_unit()) + ", which --mesh " + mesh + " can split");
    try {
        validate(o.model, o.pass_shape().batch);
    } catch (const std::invalid_argument& error) { throw program::InputError(error.what()); }
}

/// The words behind the program's name, for a job of so many ranks.
/// @throws InputError
inline DeviceOptions parse_device_options(std::span<const char* const> words, std::size_t ranks) {
    DeviceOptions parsed;
    Options& o = parsed.training;
    o.mesh = {ranks, 1, 1};
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string flag = words[i];
        if (flag == "--help") {
            parsed.help = true;
            return parsed;
        }
        if (i + 1 == words.size()) { throw program::InputError(flag + ": expected a value behind it"); }
        const std::string given = words[++i];
        const auto count = [&](std::size_t least = 1) { return program::parse_count(flag, given, least); };
        const auto number = [&] { return program::parse_not_negative(flag, given); };
        const auto name = [&](const auto& names) { return program::parse_name(flag, given, names); };
        if (flag == "--text") {
            o.text = program::parse_file(flag, given);
        } else if (flag == "--mesh") {
            o.mesh = program::parse_mesh(flag, given);
        } else if (flag == "--policy") {
            o.policy = program::parse_policy(flag, given);
        } else if (flag == "--steps") {
            o.steps = count();
        } else if (flag == "--batch") {
            o.batch = count();
        } else if (flag == "--microbatches") {
            o.microbatches = count();
        } else if (flag == "--model") {
            o.model = models[name(model_names)];
        } else if (flag == "--vocabulary") {
            o.model.vocabulary = program::parse_count(flag, given, 1, most_tokens);
        } else if (flag == "--sequence") {
            o.model.sequence = count();
        } else if (flag == "--layers") {
            o.model.layers = count();
        } else if (flag == "--width") {
            o.model.width = count();
        } else if (flag == "--heads") {
            o.model.heads = count();
        } else if (flag == "--head") {
            o.model.head = static_cast<HeadKind>(name(head_names));
        } else if (flag == "--sequence-parallel") {
            o.sequence_parallel = static_cast<SequenceParallel>(name(program::switch_names));
        } else if (flag == "--context") {
            o.context = static_cast<ContextExchange>(name(exchange_names));
        } else if (flag == "--lr") {
            o.learning_rate = number();
        } else if (flag == "--weight-decay") {
            o.weight_decay = number();
        } else if (flag == "--clip") {
            o.clip = number();
        } else if (flag == "--graph") {
            parsed.graph = name(program::switch_names) == 1;
        } else if (flag == "--seed") {
            o.seed = count(0);
        } else if (flag == "--every") {
            parsed.every = count();
        } else {
            throw program::InputError("unknown flag " + flag + ": expected one that --help lists");
        }
    }
    validate_for_ranks(o, ranks);
    return parsed;
}

}  // namespace train_gpt
