// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/sharded_options.hpp>

#include "options.hpp"

namespace train_gpt {

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
