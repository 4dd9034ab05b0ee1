// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>

#include "options.hpp"

namespace train_gpt {

namespace sk = shardkit;

/// The policy that the options name.
inline sk::DynamicPolicy policy_of(const Options& options) {
    switch (options.policy) {
        case PolicyKind::no_shard:
            return sk::DynamicPolicy(sk::NoShard{});
        case PolicyKind::shard_optimizer:
            return sk::DynamicPolicy(sk::ShardOptimizer{});
        case PolicyKind::shard_grad_op:
            return sk::DynamicPolicy(sk::ShardGradOp{});
        case PolicyKind::full_shard:
            return sk::DynamicPolicy(sk::FullShard{});
        case PolicyKind::hybrid_shard:
            return sk::DynamicPolicy(sk::HybridShard<sk::dynamic>{options.hybrid_group});
    }
    throw std::logic_error("policy_of: unknown policy");
}

}  // namespace train_gpt
