// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/policy/dynamic_policy.hpp>

namespace toy::inline SHARDKIT_BUILD {

/// A policy as one that is chosen at run time, where it can be, so that a test is compiled once for all of them:
/// dynamic_policy_test.cpp shows that the types themselves do the same.
template <class Policy>
auto chosen(const Policy& policy) {
    namespace sk = shardkit;
    if constexpr (std::is_same_v<sk::ShardAxes<Policy>, sk::Axes<sk::DpShard>>) {
        return sk::DynamicPolicy(policy);
    } else {
        return policy;
    }
}

}  // namespace toy::inline SHARDKIT_BUILD
