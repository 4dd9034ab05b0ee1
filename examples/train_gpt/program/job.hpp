// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include <shardkit/sharded/group_ref.hpp>

#include "choose_schedule.hpp"
#include "encoding.hpp"
#include "options.hpp"
#include "results.hpp"
#include "start.hpp"

namespace train_gpt {

/// Called by rank 0 after every step.
struct StepReport {
    std::size_t step;  // from 0
    double loss;
    std::optional<double> grad_norm;  // none with --release on
    double tokens_per_second;         // so far; from the second step on without the first
};

/// The first line of a file of --hashes, by which compare_hashes.py knows it.
inline constexpr std::string_view hashes_begin = "step\tof\tgroup\tkind\thash\n";

/// One training run.
struct Job {
    Options options;
    std::span<const Token> text;
    std::function<void(const StepReport&)> after_step{};  // may be empty
    Start start{};
    Identity identity{};              // saved with each step
    ChosenSchedule chosen{};          // as PlanSummary has it
    std::function<int()> signal{};    // the one that asked for the end, or 0; on every rank, or empty on every rank
    std::function<void()> trained{};  // called by rank 0 behind the last step, when nobody asks for `signal` any more
    std::function<void(const sk::GroupRef&)> group_trained{};  // called there by every rank with each group; or empty
    std::function<void(std::string_view)> hashed{};  // called by rank 0 with the lines of --hashes; or empty
    Encoding encoding{};                             // of samples
};

/// Trains as job.options say, on the engine and with the policy that they name: one of the hosts' engines.
/// @throws whatever a rank throws
Results train(const Job& job);
/// The same with --engine nccl, on this process's GPU.
Results train_on_nccl(const Job& job);

/// The part of train() for one element type: explicit instantiations in train.cpp and its siblings, so that they
/// are compiled in pieces. Each is compiled once for all engines.
template <class T>
Results train_as(const Job& job);

}  // namespace train_gpt
