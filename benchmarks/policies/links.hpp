// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/time_model.hpp>

#include "options.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// A collective that was timed.
struct LinkSample {
    double messages = 0;  ///< that follow each other in a ring
    double bytes = 0;     ///< that a rank moves
    double seconds = 0;
};

struct FittedLink {
    shardkit::planner::LinkModel link;
    std::size_t samples = 0;
    double error = 0;  ///< mean of |predicted - measured| / measured over the samples
};

/// The link that predicts the samples best: least squares of relative errors, since sizes span decades; neither
/// latency nor the time of a byte below 0.
/// @throws std::invalid_argument unless at least two samples differ in bytes and take time
FittedLink fit_link(std::span<const LinkSample> samples);

/// Of each of step_verbs.
struct FittedLinks {
    std::array<FittedLink, step_verbs.size()> verbs;
    std::string source;  ///< in words

    shardkit::planner::TimeModel::Links links() const noexcept {
        shardkit::planner::TimeModel::Links all{};
        for (std::size_t i = 0; i < step_verbs.size(); ++i) {
            all[static_cast<std::size_t>(step_verbs[i])] = verbs[i].link;
        }
        return all;
    }
};

/// Links fitted to what `benchmarks/run collectives --json` wrote into these files.
/// `engine`: that they must be of; without one all must be of the first file's. The source in words says where ranks
/// shared processors.
/// @throws InputError that names the file for what cannot be read, is no such file or of another engine, and without
///         two sizes of each of step_verbs in groups of at least two ranks
FittedLinks fit_files(const std::vector<std::string>& files, std::optional<EngineKind> engine);

/// What the planner needs to know of a policy on a mesh.
shardkit::rules::PolicyValues traits_of(const Options& options, const program::MeshExtents& mesh,
                                        program::PolicyKind policy);

/// The plan of the model on a mesh that need not be there, for an engine like threads.
/// @throws std::length_error when a count overflows
/// Returns the label of the axes across shard groups, and over cp where shards are not cut over it, on a mesh.
std::string across_groups(const shardkit::rules::PolicyValues& policy, const shardkit::AxisGrid& mesh);

shardkit::Plan plan_model(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy);

/// What predictions rest on: links that were given, or fitted ones.
struct Links {
    shardkit::planner::TimeModel::Links within{};
    shardkit::planner::TimeModel::Links across{};
    std::optional<FittedLinks> fitted;
    std::string source;  ///< in words

    static Links given(const shardkit::planner::LinkModel& within, const shardkit::planner::LinkModel& across);
    /// The same links within a node and across.
    static Links of(const FittedLinks& fitted);
};

/// One policy on a mesh that need not be there. Nothing of it was measured.
struct PredictedRow {
    program::MeshExtents mesh;
    std::size_t nodes = 0;
    program::PolicyKind policy{};
    std::size_t shard_group = 1;
    std::uint64_t memory = 0;  ///< of a rank
    double calls = 0;          ///< of a step
    double bytes = 0;          ///< that a rank moves
    double compute = 0;        ///< seconds of busy work
    double communication = 0;  ///< seconds

    double no_overlap() const noexcept { return compute + communication; }
    double full_overlap() const noexcept { return compute > communication ? compute : communication; }
    /// Of the step, as in measurements; with full overlap and with none.
    double least_exposed() const noexcept { return 1 - compute / full_overlap(); }
    double most_exposed() const noexcept { return 1 - compute / no_overlap(); }
};

inline constexpr std::array<std::string_view, 6> assumptions{
    "every collective is a ring: n - 1 messages one after the other (2 (n - 1) for an all-reduce), each with the "
    "link's latency",
    "a ring that spans nodes waits for the slower of both links in latency and in bandwidth; every rank has its own",
    "ranks lie on nodes in rank order, cp fastest, then tp, then dp",
    "the step lies between perfect overlap, the longer of computation and communication, and none, their sum",
    "computation is the busy work asked for; the optimizer's and the norm's own work are not in it",
    "memory and bytes are the planner's, without activations; tp holds copies"};

std::vector<PredictedRow> predict(const Options& options, const Links& links);

}  // namespace benchmarks::policies
