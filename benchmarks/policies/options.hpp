// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/host/processor.hpp>
#include <shardkit/plan/time_model.hpp>

#include "../../examples/common/mesh_extents.hpp"
#include "../../examples/common/policy_choice.hpp"
#include "../collectives/options.hpp"

namespace benchmarks::policies {

/// A group of the model: what one window opens.
struct GroupSize {
    std::string path;
    std::size_t numel = 0;
};

enum class ElementKind : std::uint8_t { fp64, fp32, bf16 };
enum class OptimizerKind : std::uint8_t { adamw, sgd };

/// More could round sums of 16-bit gradients, which the check takes to be exact.
inline constexpr std::size_t most_microbatches = 32;
/// Of a model.
inline constexpr std::size_t most_elements = std::size_t{1} << 44U;

inline constexpr std::array<std::string_view, 3> element_names{"double", "float", "bfloat16"};
inline constexpr std::array<std::size_t, 3> element_bytes{8, 4, 2};
/// Of --work.
inline constexpr std::array<std::string_view, 2> work_names{"here", "elsewhere"};
inline constexpr std::array<std::string_view, 2> optimizer_names{"adamw", "sgd"};

/// What a policy's steps follow.
struct ScheduleChoice {
    enum class Kind : std::uint8_t {
        none,   ///< nothing; on threads each verb communicates when it is called
        hand,   ///< nothing: the trainer begins windows ahead itself, and communication runs beside as in scheduled
                ///< steps
        passes  ///< a schedule: the step behind the passes below, in their order
    } kind = Kind::none;
    bool reduces_last = false;  ///< microbatches are reduced once
    bool keeps = false;         ///< groups stay gathered where a rank then takes `limit` bytes at most
    std::uint64_t limit = 0;    ///< 0: what the step takes without a schedule
    std::size_t depth = 0;      ///< gathers start so many windows ahead; 0: where they are needed
    bool overlaps_reductions = false;
    bool gathers_after_update = false;
    std::string text = "none";
};

/// What the command line says of the links; what it does not say is fitted.
struct LinkOptions {
    std::vector<std::string> fit;          ///< files of `benchmarks/run collectives --json`
    std::optional<EngineKind> fit_engine;  ///< that these must have been measured with; none: one for all
    std::optional<shardkit::planner::LinkModel> within;  ///< given in place of a fit
    std::optional<shardkit::planner::LinkModel> across;  ///< none: as within
    std::size_t ranks_per_node = 8;                      ///< of predicted meshes
};

/// What the command line says, checked.
struct Options {
    EngineKind engine = EngineKind::threads;
    std::vector<program::MeshExtents> meshes;
    std::vector<program::PolicyKind> policies;
    std::size_t hybrid_group = 0;  ///< 0: not given
    std::string model;             ///< in words
    std::vector<GroupSize> groups;
    ElementKind element = ElementKind::fp32;
    OptimizerKind optimizer = OptimizerKind::adamw;
    std::size_t microbatches = 1;
    bool prefetch = true;
    bool processes_spare_one = false;  ///< of an MPI job: program::Processes::spare_processor()
    std::optional<bool> overlap;       ///< none: as the engine and the schedules have it
    std::vector<ScheduleChoice> schedules{{}};
    double slow_percent = 0;              ///< by which a rank's busy work takes longer
    bool slow_in_turns = false;           ///< another rank in each piece of work, else rank 0 in all
    bool work_elsewhere = false;          ///< busy work leaves the processor free, as an accelerator's does
    double compute_us = 1000;             ///< of a group's forward
    std::optional<std::uint64_t> tokens;  ///< then from floating-point operations at `gflops`
    double gflops = 0;
    std::size_t warmup = 3;
    std::size_t rounds = 21;
    std::size_t steps = 1;  ///< of a turn, one behind the other
    bool pin = false;
    LinkOptions links;
    std::vector<program::MeshExtents> predict;  ///< not empty: nothing is trained
    std::string json;
    std::string plot;

    /// Whether so many ranks leave a processor free, on every host.
    bool spare_processor(std::size_t ranks) const noexcept {
        return engine == EngineKind::mpi ? processes_spare_one : shardkit::host::detail::allowed_cpus() > ranks;
    }
    /// Whether communication is given to streams of the engine's own, which have threads.
    bool overlaps() const noexcept {
        const bool ahead = std::any_of(schedules.begin(), schedules.end(),
                                       [](const ScheduleChoice& each) { return each.depth > 0; });
        return overlap.value_or(engine == EngineKind::mpi && ahead);
    }
    /// The same of one schedule's steps: on threads those of `none` communicate in the caller, to compare with.
    bool overlaps(const ScheduleChoice& choice) const noexcept {
        return overlaps() && (engine == EngineKind::mpi || choice.kind != ScheduleChoice::Kind::none);
    }
    /// Whether a trainer begins the next window before the work of this one by itself.
    bool prefetches(const ScheduleChoice& choice) const noexcept {
        return choice.kind == ScheduleChoice::Kind::hand || (prefetch && choice.kind == ScheduleChoice::Kind::none);
    }
    std::size_t in_flight(const ScheduleChoice& choice = {}) const noexcept {
        return prefetch || prefetches(choice) ? 2 : 1;
    }
    std::size_t optimizer_states() const noexcept { return optimizer == OptimizerKind::adamw ? 2 : 1; }
    std::size_t element_size() const noexcept { return element_bytes[static_cast<std::size_t>(element)]; }
    std::size_t numel() const noexcept {
        std::size_t all = 0;
        for (const GroupSize& group : groups) { all += group.numel; }
        return all;
    }
    /// Seconds of busy work in the forward pass of a group and microbatch; the backward pass takes twice as long.
    double forward_seconds(std::size_t group) const noexcept {
        return tokens ? 2 * static_cast<double>(*tokens) * static_cast<double>(groups[group].numel) / (gflops * 1e9)
                      : compute_us * 1e-6;
    }
    /// Of a whole step.
    double busy_seconds() const noexcept {
        double all = 0;
        for (std::size_t g = 0; g < groups.size(); ++g) { all += 3 * forward_seconds(g); }
        return all * static_cast<double>(microbatches);
    }
    /// Data-parallel ranks of a shard group under the policies that have such: as given; else a node's where
    /// predicted, and the smallest divisor of dp from 2 on where measured.
    std::size_t hybrid_group_of(const program::MeshExtents& mesh) const noexcept;
    shardkit::DynamicPolicy policy_on(const program::MeshExtents& mesh, program::PolicyKind kind) const {
        return program::PolicyChoice{kind, hybrid_group_of(mesh)}.policy();
    }
};

/// What the command line asks for; nothing when it was the help, which is then in `help`.
/// `processes`: of this job, for --engine mpi; `spare_processor`: what they say of it.
/// @throws InputError that names the flag, what was given and what was expected
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help,
                                          std::size_t processes, bool spare_processor);

}  // namespace benchmarks::policies
