// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "shape.hpp"

namespace cuda_trainer {

/// The user asked for something that cannot be done; the text says what was expected.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

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
    std::string policy = "no_shard";
    std::size_t hybrid_group = 1;  ///< N of hybrid_shard:N, hybrid_optimizer:N and secondary_shard:N
    bool schedule = false;         ///< all steps but the first follow the first one's schedule
    bool graph = false;            ///< all steps but the first are launches of one CUDA graph
    std::string offload = "none";  ///< what of the optimizer lies in host memory: none, states or update
    bool help = false;
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

/// Reads one number after another; every complaint names the flag.
class FlagReader {
  public:
    explicit FlagReader(std::span<const char* const> arguments) : left_(arguments) {}

    bool next() {
        if (left_.empty()) { return false; }
        flag_ = left_.front();
        left_ = left_.subspan(1);
        return true;
    }
    std::string_view flag() const { return flag_; }
    std::string_view text() {
        if (left_.empty()) { throw InputError(std::string(flag_) + " is the last word; expected a value after it"); }
        value_ = left_.front();
        left_ = left_.subspan(1);
        return value_;
    }
    std::uint64_t count(std::uint64_t least = 1, std::uint64_t most = 1'000'000'000) {
        std::uint64_t parsed = 0;
        if (!parse(text(), parsed) || parsed < least || parsed > most) {
            refuse("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
        }
        return parsed;
    }
    double number() {
        double parsed = 0;
        if (!parse(text(), parsed) || !std::isfinite(parsed) || parsed < 0) { refuse("a number of at least 0"); }
        return parsed;
    }
    [[noreturn]] void refuse(const std::string& expected) const {
        throw InputError(std::string(flag_) + " " + std::string(value_) + ": expected " + expected);
    }

  private:
    template <class N>
    static bool parse(std::string_view text, N& number) {
        const char* const end = text.data() + text.size();
        const auto [stopped, error] = std::from_chars(text.data(), end, number);
        return error == std::errc{} && stopped == end;
    }

    std::span<const char* const> left_;
    std::string_view flag_;
    std::string_view value_;
};

/// Returns whether a policy of this name is one of groups of N ranks.
inline bool has_groups(std::string_view policy) {
    return policy == "hybrid_shard" || policy == "hybrid_optimizer" || policy == "secondary_shard";
}

inline void read_policy(FlagReader& read, Options& options) {
    const std::string given(read.text());
    const std::size_t colon = given.find(':');
    options.policy = given.substr(0, colon);
    if (has_groups(options.policy) && colon != std::string::npos) {
        const std::string flag = "--policy " + given.substr(0, colon + 1);
        const char* const words[] = {flag.c_str(), given.c_str() + colon + 1};
        FlagReader group(words);
        group.next();
        options.hybrid_group = group.count();
    } else if (given != "no_shard" && given != "shard_optimizer" && given != "shard_grad_op" &&
               given != "full_shard") {
        read.refuse(
            "no_shard, shard_optimizer, shard_grad_op, full_shard, hybrid_shard:N, hybrid_optimizer:N or "
            "secondary_shard:N");
    }
}

inline void read_offload(FlagReader& read, Options& options) {
    options.offload = read.text();
    if (options.offload != "none" && options.offload != "states" && options.offload != "update") {
        read.refuse("none, states or update");
    }
}

inline bool read_switch(FlagReader& read) {
    const std::string_view given = read.text();
    if (given != "on" && given != "off") { read.refuse("on or off"); }
    return given == "on";
}

/// The words after the program's name.
/// @throws InputError
inline Options parse(std::span<const char* const> arguments) {
    constexpr std::uint64_t widest = 65536;
    Options options;
    FlagReader read(arguments);
    while (read.next()) {
        const std::string_view flag = read.flag();
        if (flag == "--help") {
            options.help = true;
        } else if (flag == "--text") {
            options.text = read.text();
        } else if (flag == "--steps") {
            options.steps = read.count();
        } else if (flag == "--batch") {
            options.batch = read.count(1, 1'000'000);
        } else if (flag == "--microbatches") {
            options.microbatches = read.count();
        } else if (flag == "--context") {
            options.shape.context = read.count(1, 1024);
        } else if (flag == "--width") {
            options.shape.width = read.count(1, widest);
        } else if (flag == "--layers") {
            options.shape.layers = read.count(1, 1000);
        } else if (flag == "--lr") {
            options.learning_rate = read.number();
        } else if (flag == "--clip") {
            options.clip = read.number();
        } else if (flag == "--policy") {
            read_policy(read, options);
        } else if (flag == "--schedule") {
            options.schedule = read_switch(read);
        } else if (flag == "--graph") {
            options.graph = read_switch(read);
        } else if (flag == "--offload") {
            read_offload(read, options);
        } else if (flag == "--seed") {
            options.seed = read.count(0, UINT64_MAX);
        } else if (flag == "--every") {
            options.every = read.count();
        } else {
            throw InputError("unknown flag " + std::string(flag) + "; --help lists them");
        }
    }
    if (options.text.empty() && !options.help) {
        throw InputError("--text FILE is missing: expected a file to learn");
    }
    return options;
}

}  // namespace cuda_trainer
