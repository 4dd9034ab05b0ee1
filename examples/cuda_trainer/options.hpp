// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/policy/sharded_options.hpp>

#include "../common/input_error.hpp"
#include "../common/policy_choice.hpp"
#include "../common/read_flag.hpp"
#include "shape.hpp"

namespace cuda_trainer {

using program::InputError;

inline constexpr std::array<std::string_view, 3> offload_names{"none", "states", "update"};  // in Offload's order

struct Options {
    Shape shape;
    std::size_t steps = 200;
    std::size_t batch = 256;  ///< samples of a step, over all ranks and microbatches
    std::size_t microbatches = 1;
    std::size_t every = 20;  ///< steps between two lines of output
    double learning_rate = 1e-3;
    double clip = 0;  ///< greatest norm of the gradients; 0: any
    std::uint64_t seed = 1;
    std::string text;
    program::PolicyChoice policy{program::PolicyKind::no_shard};
    bool schedule = false;  ///< all steps but the first follow the first one's schedule
    bool graph = false;     ///< all steps but the first are launches of one CUDA graph
    shardkit::Offload offload = shardkit::Offload::none;
    bool help = false;
};

/// What a run tells while it trains.
struct Report {
    /// Parameters, gradients, optimizer states and buffers of this rank, on the device; the activations are not in
    /// it.
    std::function<void(std::size_t bytes)> model_bytes;
    /// Every Options::every steps and at the last one, on every rank.
    std::function<void(std::size_t step, double loss)> step;
};

inline constexpr const char* usage =
    "  --text FILE       what to learn, any bytes (needed)\n"
    "  --steps N         200\n"
    "  --batch N         256: samples of a step, a multiple of ranks x microbatches\n"
    "  --microbatches N  1: passes of each rank in a step\n"
    "  --context N       16: bytes that the model sees\n"
    "  --width N         256\n"
    "  --layers N        2\n"
    "  --lr X            0.001\n"
    "  --clip X          0: greatest norm of the gradients, 0 for any\n"
    "  --policy NAME     no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard:N, hybrid_optimizer:N "
    "or\n"
    "                    secondary_shard:N\n"
    "  --schedule on|off off: on makes all steps but the first gather a window ahead, and reduce beside the next\n"
    "                    backward pass, as a schedule says\n"
    "  --graph on|off    off: on makes all steps but the first launches of one CUDA graph\n"
    "  --offload NAME    none; states lie in pinned host memory with states, and are updated there with update\n"
    "  --seed N          1: decides the first parameters and the order of the text\n"
    "  --every N         20: steps between two lines of output\n"
    "One GPU unless RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set, as torchrun does.\n";

/// The words after the program's name.
/// @throws InputError that names the flag, what was given and what was expected
inline Options parse(std::span<const char* const> words) {
    using program::into, program::into_count, program::into_name;
    constexpr std::uint64_t many = 1'000'000'000;
    Options o;
    const std::map<std::string, program::Read> flags{
        {"--text", into(o.text, program::parse_file)},
        {"--steps", into_count(o.steps, 1, many)},
        {"--batch", into_count(o.batch, 1, 1'000'000)},
        {"--microbatches", into_count(o.microbatches, 1, many)},
        {"--context", into_count(o.shape.context, 1, 1024)},
        {"--width", into_count(o.shape.width, 1, 65536)},
        {"--layers", into_count(o.shape.layers, 1, 1000)},
        {"--lr", into(o.learning_rate, program::parse_not_negative)},
        {"--clip", into(o.clip, program::parse_not_negative)},
        {"--policy", into(o.policy, program::parse_policy)},
        {"--schedule", into_name(o.schedule, program::switch_names)},
        {"--graph", into_name(o.graph, program::switch_names)},
        {"--offload", into_name(o.offload, offload_names)},
        {"--seed", into_count(o.seed, 0)},
        {"--every", into_count(o.every, 1, many)},
    };
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string flag = words[i];
        if (flag == "--help") {
            o.help = true;
            continue;
        }
        const auto found = flags.find(flag);
        if (found == flags.end()) { throw InputError("unknown flag ", flag, "; --help lists them"); }
        if (++i == words.size()) { throw InputError(flag, " is the last word; expected a value after it"); }
        found->second(flag, words[i]);
    }
    if (o.text.empty() && !o.help) { throw InputError("--text FILE is missing: expected a file to learn"); }
    return o;
}

}  // namespace cuda_trainer
