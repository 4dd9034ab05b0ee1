// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/core/bf16.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/policy/slice_order.hpp>
#include <shardkit/policy/state_format.hpp>

#include "../../common/mesh_extents.hpp"
#include "../../common/parse.hpp"
#include "../../common/policy_choice.hpp"
#include "../model/config.hpp"
#include "../model/split.hpp"
#include "names.hpp"

namespace train_gpt {

enum class EngineKind : std::uint8_t { threads, mpi, nccl };
enum class Dtype : std::uint8_t { fp64, fp32, bf16 };
/// How keys and values get to the queries of other cp ranks.
enum class ContextExchange : std::uint8_t { ring, gather };
enum class OptimizerKind : std::uint8_t { adamw, sgd, lion, muon };

inline constexpr std::array<std::string_view, 3> engine_names{"threads", "mpi", "nccl"};
inline constexpr std::array<std::string_view, 3> dtype_names{"fp64", "fp32", "bf16"};
inline constexpr std::array<std::string_view, 4> optimizer_names{"adamw", "sgd", "lion", "muon"};
inline constexpr std::array<std::string_view, 3> state_names{"full", "bf16", "block8"};  // in StateFormat's order
inline constexpr std::array<std::string_view, 3> master_names{"kept", "none", "split"};  // in MasterWeights' order
inline constexpr std::array<std::string_view, 2> exchange_names{"ring", "gather"};
inline constexpr std::array<std::string_view, 2> head_names{"tied", "untied"};

/// How --schedule names what a step follows: "auto", or "prefetch:2".
struct ScheduleChoice {
    enum class Kind : std::uint8_t {
        none,      ///< nothing: each verb communicates when it is called
        prefetch,  ///< gathers start so many windows ahead
        automatic  ///< what waits least
    } kind = Kind::none;
    std::size_t depth = 0;  ///< of prefetch; else 0

    std::string text() const {
        return kind == Kind::none ? "none" : kind == Kind::prefetch ? "prefetch:" + std::to_string(depth) : "auto";
    }
};

/// @throws InputError for anything but none, auto and prefetch, with or without a depth
inline ScheduleChoice parse_schedule(const std::string& flag, const std::string& given) {
    constexpr std::string_view deeper = "prefetch:";
    if (given == "none") { return {}; }
    if (given == "auto") { return {ScheduleChoice::Kind::automatic, 0}; }
    if (given == "prefetch") { return {ScheduleChoice::Kind::prefetch, 1}; }
    std::size_t depth = 0;
    if (given.starts_with(deeper) && program::read_whole(std::string_view(given).substr(deeper.size()), depth) &&
        depth > 0) {
        return {ScheduleChoice::Kind::prefetch, depth};
    }
    throw program::bad_flag(flag, given, "none, auto, prefetch or prefetch:N, N a whole number of at least 1");
}

/// What the command line says, checked: see validate(const Options&).
struct Options {
    program::MeshExtents mesh{2, 1, 1};
    std::size_t ep = 1;  // data ranks that share experts
    program::PolicyChoice policy;
    EngineKind engine = EngineKind::threads;
    std::size_t ranks_per_host = 0;  // in their order; 0: all on one
    bool spare_processor = false;    // every host of the job has more processors than ranks, which can overlap
    ModelConfig model;
    SequenceParallel sequence_parallel = SequenceParallel::off;
    ContextExchange context = ContextExchange::ring;
    std::size_t steps = 400;
    std::size_t every = 1;   // steps between two times that losses are read
    bool graph = false;      // on GPUs: steps, but the first, are launches of one CUDA graph
    std::size_t batch = 16;  // sequences of one step, over all ranks and microbatches
    std::size_t microbatches = 1;
    std::size_t slices = 0;  // of the batch, added along one tree; 0: microbatches and ranks are added in turn
    Dtype dtype = Dtype::fp32;
    OptimizerKind optimizer = OptimizerKind::adamw;
    shardkit::StateFormat states = shardkit::StateFormat::full;
    shardkit::MasterWeights master = shardkit::MasterWeights::kept;
    double learning_rate = 1e-3;
    double weight_decay = 0.01;
    double clip = 1.0;  // 0: no clipping
    shardkit::GradientRelease release = shardkit::GradientRelease::never;
    ScheduleChoice schedule;
    std::uint64_t memory_limit = 0;  // bytes of a rank; 0: none
    std::uint64_t seed = 1;
    std::string text;      // file names; empty: not asked for
    std::string tokens;    // instead of a text
    std::string encoding;  // of a text and of samples; empty: bytes
    std::string json;
    std::string plot;
    std::string schedule_out;
    std::string trace;
    std::string hashes;
    std::size_t verify_every = 0;  // steps; 0: never
    std::size_t sample = 0;
    double deadline = 0;        // seconds; 0: the engine's own
    std::string record;         // prefix of files; empty: none
    std::size_t slow_rank = 0;  // sleeps before each step
    double slow_seconds = 0;
    std::string save;            // folders; empty: not asked for
    std::size_t save_every = 0;  // steps; 0: after the last alone
    std::size_t keep = 0;        // newest steps; 0: all
    std::string resume;
    std::string init;
    NameKind names = NameKind::shardkit;
    enum class Action : std::uint8_t { train, plan } action = Action::train;

    /// The policy of every group.
    shardkit::DynamicPolicy chosen_policy() const {
        std::optional<shardkit::Slices> cut;
        if (slices > 0) { cut.emplace(slices); }
        return shardkit::named_policy(policy.text(), cut);
    }
    constexpr std::size_t sequences_per_rank() const noexcept { return batch / mesh.dp; }
    /// Where microbatch m of a rank's sequences begins; parts differ by one sequence at most.
    constexpr std::size_t microbatch_begin(std::size_t m) const noexcept {
        const std::size_t longer = sequences_per_rank() % microbatches;
        return m * (sequences_per_rank() / microbatches) + (m < longer ? m : longer);
    }
    std::size_t microbatch_sequences(std::size_t m) const noexcept {
        return microbatch_begin(m + 1) - microbatch_begin(m);
    }
    /// How the model and the sequences are split, as seen by the rank of these coordinates.
    constexpr Split split(std::size_t tp_index = 0, std::size_t cp_index = 0) const noexcept {
        return {mesh.tp, tp_index, mesh.cp, cp_index, sequence_parallel};
    }
    /// The largest pass of the data-parallel ranks, in whole sequences.
    constexpr BatchShape pass_shape() const noexcept {
        return {(sequences_per_rank() + microbatches - 1) / microbatches, model.sequence};
    }
    /// Whether the state after so many steps is to be saved. `at_the_end`: the run's, or before it where that is
    /// asked for.
    bool saves(std::size_t after, bool at_the_end) const noexcept {
        return !save.empty() && (at_the_end || (save_every != 0 && after % save_every == 0));
    }
    /// The files that a run writes, by flag.
    std::array<std::pair<const char*, const std::string&>, 5> outputs() const {
        return {{{"--json", json},
                 {"--plot", plot},
                 {"--schedule-out", schedule_out},
                 {"--trace", trace},
                 {"--hashes", hashes}}};
    }
    /// What a run's data are.
    std::string_view unit() const noexcept { return tokens.empty() && encoding.empty() ? "bytes" : "tokens"; }
    constexpr std::size_t tokens_per_step() const noexcept { return batch * model.sequence; }
};

/// f(a value of the type that parameters and gradients have).
template <class F>
auto with_dtype(Dtype dtype, const F& f) {
    if (dtype == Dtype::fp64) { return f(double{}); }
    return dtype == Dtype::fp32 ? f(float{}) : f(shardkit::bf16{});
}

/// The options of a group with the command line's policy, masters and release: of the groups that train and of those
/// in plans.
template <class Group>
shardkit::ShardedOptions<Group, shardkit::DynamicPolicy> group_options(const Options& options) {
    shardkit::ShardedOptions<Group, shardkit::DynamicPolicy> made{options.chosen_policy()};
    made.master = options.master;
    made.gradient_release = options.release;
    return made;
}

}  // namespace train_gpt
