// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/policy/dynamic_policy.hpp>

namespace toy SHARDKIT_BUILD {

/// A policy as one that is chosen at run time, so that a test is compiled once for all of them:
/// dynamic_policy_test.cpp shows that the types themselves do the same.
template <class Policy>
shardkit::DynamicPolicy chosen(const Policy& policy) {
    return shardkit::DynamicPolicy(policy);
}

}  // namespace toy SHARDKIT_BUILD
