// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/sharded_options.hpp>

namespace train_gpt {

/// The options of a group with the command line's policy, masters and release: of the groups that train and of those
/// in plans.
template <class Group>
shardkit::ShardedOptions<Group, shardkit::DynamicPolicy> group_options(const shardkit::DynamicPolicy& policy,
                                                                       shardkit::MasterWeights master,
                                                                       shardkit::GradientRelease release) {
    shardkit::ShardedOptions<Group, shardkit::DynamicPolicy> options{policy};
    options.master = master;
    options.gradient_release = release;
    return options;
}

}  // namespace train_gpt
