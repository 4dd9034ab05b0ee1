// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/verb.hpp>

#include "../common/measure.hpp"
#include "options.hpp"

namespace benchmarks::policies {

/// Verbs of a training step.
inline constexpr std::array<shardkit::Verb, 3> step_verbs{shardkit::Verb::all_gather, shardkit::Verb::reduce_scatter,
                                                          shardkit::Verb::all_reduce};

struct TheoryOfVerb {
    double calls = 0;
    double bytes = 0;   ///< moved by a rank, the mean over ranks
    double across = 0;  ///< those of them that go to other shard groups, or other ranks of cp
};
/// In the order of step_verbs.
using Theory = std::array<TheoryOfVerb, step_verbs.size()>;

/// What a step must move, from closed forms and not from the planner: with M microbatches, gather bytes G and reduce
/// bytes R, times (n - 1) / n: NoShard 2 R; ShardOptimizer R + G; ShardGradOp M R + G; FullShard M (R + 2 G); hybrid
/// as FullShard with n = N; where a shard has replicas (over cp, or across hybrid groups) 2 R / n (r - 1) / r more,
/// of HybridOptimizer (R + G) / n (r - 1) / r and of SecondaryShard (M R + G) / n (r - 1) / r, with R / n in the type
/// of sums; and 560 bytes of the norm over the world. G and R are those of flat buffers whose shards are padded to
/// 128 bytes. `engine`: whether small all-reduces are gathered by everybody; `times`: that each group is gathered in
/// a step, where a schedule says; `reduces_last`: R once, of all microbatches.
/// Source:  ZeRO, arXiv 1910.02054, section 7; Chan et al. 2007
Theory theory(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy,
              const shardkit::engine::Traits& engine, const std::vector<std::size_t>& times = {},
              bool reduces_last = false);

/// Collectives of one verb in one step: as the engine counted them, by the closed form, and as planned. Bytes are
/// those moved by a rank, the mean over ranks.
struct VerbTraffic {
    double calls = 0;
    double bytes = 0;
    TheoryOfVerb theory;
    double planned_calls = 0;
    double planned_bytes = 0;
    double across = 0;  ///< of `bytes`, as TheoryOfVerb has them
    double planned_across = 0;
};

/// One policy on one mesh. Times are over all ranks, as world_seconds has them.
struct Row {
    program::MeshExtents mesh;
    program::PolicyKind policy{};
    std::string schedule = "none";
    std::size_t shard_group = 1;  ///< data-parallel ranks that share one copy
    Summary step;
    Summary compute;
    Summary communication;
    std::array<VerbTraffic, step_verbs.size()> traffic;  ///< in the order of step_verbs
    std::uint64_t peak_bytes = 0;                        ///< the largest of all ranks
    std::uint64_t planned_bytes = 0;
    double difference = 0;            ///< largest from one rank, over the larger of 1 and the element
    double bound = 0;                 ///< of that difference
    std::optional<double> predicted;  ///< seconds of the communication; none without links
    std::optional<double> simulated;  ///< seconds of the step; likewise

    double exposed() const noexcept { return (step.median - compute.median) / step.median; }
    /// Of the communication's time, as schedules count it; 0 where nothing is communicated.
    double exposed_share() const noexcept {
        const bool communicates = total().bytes > 0 && communication.median > 0;
        return communicates ? (step.median - compute.median) / communication.median : 0;
    }
    /// (simulated - measured) / measured
    std::optional<double> simulation_error() const noexcept {
        if (!simulated) { return std::nullopt; }
        return *simulated / step.median - 1;
    }
    /// (predicted - measured) / measured; none where nothing is communicated
    std::optional<double> prediction_error() const noexcept {
        if (!predicted || communication.median <= 0) { return std::nullopt; }
        return *predicted / communication.median - 1;
    }
    VerbTraffic total() const noexcept;
    /// What the data says that must not be: differences in calls or bytes, and from one rank.
    std::vector<std::string> wrong() const;
};

}  // namespace benchmarks::policies
