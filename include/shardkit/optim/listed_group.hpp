// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/sharded/group.hpp>

namespace shardkit::detail {

/// A group that is trained, in a step of its optimizer.
template <class Rule>
struct TrainedGroup {
    GroupOptimizer<Rule>* group;
    Group* state;
    const std::uint64_t* steps;  ///< which step it is, in the engine's memory
    bool taken;                  ///< whether the group takes part in the step
};

}  // namespace shardkit::detail
