// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/trainer.hpp"

/// Trainings that several tests of this folder run, each compiled in the one that is named.
namespace toy SHARDKIT_BUILD {

using Ranks = std::vector<RankResult>;

// plain_policies_test.cpp
extern template Ranks train_as<sk::Precision<double>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                                      sk::RankOptions, const sk::threads::LaunchOptions&);

// hybrid_policies_test.cpp
using FullOverBoth = sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>;
extern template Ranks train_as<sk::Precision<double>>(Mesh, const FullOverBoth&, const Training&, const Hooks&,
                                                      sk::RankOptions, const sk::threads::LaunchOptions&);

// bitwise_equal_test.cpp
extern template Ranks train_as<sk::Precision<float>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                                     sk::RankOptions, const sk::threads::LaunchOptions&);
extern template Ranks train_as<sk::Precision<sk::bf16>>(Mesh, const sk::DynamicPolicy&, const Training&, const Hooks&,
                                                        sk::RankOptions, const sk::threads::LaunchOptions&);

}  // namespace toy SHARDKIT_BUILD
