// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// f(policy) with the library's type; hybrid groups are those that the options give `mesh`.
template <class F>
auto with_policy(PolicyKind kind, const Options& options, const MeshExtents& mesh, F f) {
    switch (kind) {
        case PolicyKind::no_shard:
            return f(shardkit::NoShard{});
        case PolicyKind::shard_optimizer:
            return f(shardkit::ShardOptimizer{});
        case PolicyKind::shard_grad_op:
            return f(shardkit::ShardGradOp{});
        case PolicyKind::full_shard:
            return f(shardkit::FullShard{});
        case PolicyKind::hybrid_shard:
            return f(shardkit::HybridShard<shardkit::dynamic>{options.hybrid_group_of(mesh)});
    }
    throw std::invalid_argument("with_policy: no such policy");
}

}  // namespace benchmarks::policies
