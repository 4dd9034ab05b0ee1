// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "options.hpp"
#include "text.hpp"

namespace train_gpt {

/// What decides a run's numbers, as flags and texts: a run that is resumed has the same. What may differ is where and
/// how it is computed: mesh, policy, engine, microbatches, --sequence-parallel, --context, and the number of steps.
using Identity = std::vector<std::pair<std::string, std::string>>;
Identity identity_of(const Options& options, std::span<const Token> text);

/// Where a run begins.
struct Start {
    std::size_t first_step = 0;                     // how many steps are done
    std::string folder;                             // the step's that is resumed; empty: a new run
    NameKind names = NameKind::shardkit;            // of the files in it
    std::string prefix = std::string(gpt2_prefix);  // of GPT-2's names in the file of --init
    bool subset = false;                            // whether that file holds tensors which are no parameters
    std::string notes;                              // lines for the user; ended each
};

/// Looks for what --resume, --init and --save name, and checks that it fits this run. Reads no parameters but a tied
/// head's. Local: every process finds the same.
/// @throws InputError that names the flag, what was found and what was expected
Start find_start(const Options& options, const Identity& identity);

/// What a run reads before its first step.
struct Inputs {
    Text text;
    Identity identity;  // where a run saves, or begins with files
    Start start;
};
/// Reads what a run begins with; of a plan, which takes none of it, the files that are named.
/// @throws InputError as read_text and find_start
Inputs read_inputs(const Options& options);

}  // namespace train_gpt
