// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/plan/plan.hpp>

#include "choose_schedule.hpp"
#include "options.hpp"
#include "results.hpp"

namespace train_gpt {

/// What a run will take, before it takes it: the library's plan, and what this program adds to it.
struct PlanSummary {
    shardkit::Plan library;
    std::uint64_t workspace_bytes = 0;  // activations, scratch, travelling keys and values, and tokens of one rank
    std::uint64_t matrix_bytes = 0;     // whole matrices of Muon, on the rank with most
    ChosenSchedule chosen{};
    std::string schedule_text;  // for --schedule-out, where asked for
    Collectives collectives;    // of one steady step of one rank, the mean over ranks

    std::uint64_t beside_bytes() const noexcept { return workspace_bytes + matrix_bytes; }
    std::uint64_t bytes_per_rank() const noexcept { return library.memory.total().value + beside_bytes(); }
};

/// Arithmetic only: any number of ranks on any machine. `products`: bytes that a device's library of products has.
/// @throws InputError when the model's sizes overflow, or when --memory-limit is too little
PlanSummary make_plan(const Options& options, const shardkit::engine::Traits& engine, std::size_t products = 0);
/// Of the engines of hosts.
PlanSummary make_plan(const Options& options);
/// Of --engine nccl. @throws InputError when this program was built without
PlanSummary plan_on_nccl(const Options& options);

/// A line for each verb and axes: what was measured, where something was, what is planned and, if there are any, the
/// planned bytes between hosts.
std::string table_of(const Collectives& planned, const Collectives* measured = nullptr);
/// Model, memory per rank and traffic per step, in several lines.
std::string describe_plan(const Options& options, const PlanSummary& plan);

}  // namespace train_gpt
