// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/policy/shard_over.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/trainer.hpp"

/// Trainings that several tests of this folder run, each compiled in the one that is named.
namespace toy::inline SHARDKIT_BUILD {

using Ranks = std::vector<RankResult>;

// plain_policies_test.cpp
extern template Ranks train<sk::Precision<double>>(Mesh, sk::NoShard, const Training&, const Hooks&, sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, sk::ShardOptimizer, const Training&, const Hooks&,
                                                   sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, sk::ShardGradOp, const Training&, const Hooks&,
                                                   sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, sk::FullShard, const Training&, const Hooks&,
                                                   sk::RankOptions);

// hybrid_policies_test.cpp
extern template Ranks train<sk::Precision<double>>(Mesh, sk::HybridShard<sk::dynamic>, const Training&, const Hooks&,
                                                   sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>,
                                                   const Training&, const Hooks&, sk::RankOptions);

// custom_policies_test.cpp
extern template Ranks train<sk::Precision<double>>(Mesh, KeepUntilUpdate, const Training&, const Hooks&,
                                                   sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, ReduceOnce, const Training&, const Hooks&, sk::RankOptions);
extern template Ranks train<sk::Precision<double>>(Mesh, ReplicateGradients, const Training&, const Hooks&,
                                                   sk::RankOptions);

// bitwise_equal_test.cpp
extern template Ranks train<sk::Precision<float>>(Mesh, sk::NoShard, const Training&, const Hooks&, sk::RankOptions);
extern template Ranks train<sk::Precision<float>>(Mesh, sk::ShardOptimizer, const Training&, const Hooks&,
                                                  sk::RankOptions);
extern template Ranks train<sk::Precision<float>>(Mesh, sk::ShardGradOp, const Training&, const Hooks&,
                                                  sk::RankOptions);
extern template Ranks train<sk::Precision<float>>(Mesh, sk::FullShard, const Training&, const Hooks&,
                                                  sk::RankOptions);
extern template Ranks train<sk::Precision<sk::bf16>>(Mesh, sk::NoShard, const Training&, const Hooks&,
                                                     sk::RankOptions);
extern template Ranks train<sk::Precision<sk::bf16>>(Mesh, sk::ShardOptimizer, const Training&, const Hooks&,
                                                     sk::RankOptions);
extern template Ranks train<sk::Precision<sk::bf16>>(Mesh, sk::ShardGradOp, const Training&, const Hooks&,
                                                     sk::RankOptions);
extern template Ranks train<sk::Precision<sk::bf16>>(Mesh, sk::FullShard, const Training&, const Hooks&,
                                                     sk::RankOptions);

}  // namespace toy::inline SHARDKIT_BUILD
