// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/sharded/group_state.hpp>

namespace shardkit::detail {

/// A group that is trained, in a step of its optimizer that updates elements of type `Updated`.
template <class Rule, class Engine, class Precision, class Updated>
struct ListedGroup {
    GroupOptimizer<Rule, Engine, Arithmetic<typename Precision::Master>>* group;
    GroupState<Engine, Precision>* state;
    const std::uint64_t* steps;  ///< which step it is, in the engine's memory
    bool taken;                  ///< whether the group takes part in the step

    /// What the step reads and writes with the rule's first N states.
    template <std::size_t N>
    auto spans() const {
        return group->template spans<N, Updated>(*state, steps);
    }
    /// The same without the gradient. `steps`: which step it is, in memory of the host or the engine's.
    template <std::size_t N>
    auto spans_at_rest(const std::uint64_t* its_steps) const {
        return group->template spans_at_rest<N, Updated>(*state, its_steps);
    }
};

}  // namespace shardkit::detail
