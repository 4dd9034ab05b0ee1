// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>

#include "options.hpp"

namespace train_gpt {

/// f(policy) with the policy that the options name.
template <class F>
auto with_policy(const Options& options, F f) {
    switch (options.policy) {
        case PolicyKind::no_shard:
            return f(shardkit::NoShard{});
        case PolicyKind::shard_optimizer:
            return f(shardkit::ShardOptimizer{});
        case PolicyKind::shard_grad_op:
            return f(shardkit::ShardGradOp{});
        case PolicyKind::full_shard:
            return f(shardkit::FullShard{});
        case PolicyKind::hybrid_shard:
            return f(shardkit::HybridShard<shardkit::dynamic>{options.hybrid_group});
    }
    throw std::logic_error("with_policy: unknown policy");
}

}  // namespace train_gpt
