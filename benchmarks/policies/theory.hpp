// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/verb.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// Verbs of a training step.
inline constexpr std::array<shardkit::Verb, 3> step_verbs{shardkit::Verb::all_gather, shardkit::Verb::reduce_scatter,
                                                          shardkit::Verb::all_reduce};

struct TheoryOfVerb {
    double calls = 0;
    double bytes = 0;  ///< moved by a rank, the mean over ranks
};
/// In the order of step_verbs.
using Theory = std::array<TheoryOfVerb, step_verbs.size()>;

/// What a step must move, from closed forms and not from the planner: with M microbatches, gather bytes G and reduce
/// bytes R, times (n - 1) / n: NoShard 2 R; ShardOptimizer R + G; ShardGradOp M R + G; FullShard M (R + 2 G); hybrid
/// as FullShard with n = N; where a shard has replicas (over cp, or across hybrid groups) 2 R / n (r - 1) / r more;
/// and the norm's 16 n bytes over the world. G and R are those of flat buffers whose shards are padded to 128 bytes.
/// `engine`: whether small all-reduces are gathered by everybody.
/// Source:  ZeRO, arXiv 1910.02054, section 7; Chan et al. 2007
Theory theory(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy,
              const shardkit::EngineTraits& engine);

}  // namespace benchmarks::policies
