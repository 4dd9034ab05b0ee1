// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/element.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
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

/// The same where the step updates elements of these types.
template <class Rule, class Types>
struct ListedGroup : TrainedGroup<Rule> {
    using A = typename Types::A;
    using Storage = typename StorageOf<Rule>::type;
    using Base = TrainedGroup<Rule>;
    using Base::group;
    using Base::state;
    using Base::steps;

    std::span<const typename Types::Reduction> gradient() const { return group->gradient(*state); }
    /// What the step reads and writes with the rule's first N states.
    template <std::size_t N>
    auto spans() const {
        using Gather = typename Types::Gather;
        rules::UpdateSpans<typename Types::Master, Gather, typename Types::Reduction, N, Storage> spans;
        spans.gradient = gradient();
        auto& parameters = state->parameters();
        if constexpr (std::is_same_v<typename Types::Master, Gather>) {
            spans.master = parameters.gather_source();
            spans.rest = parameters.rest();
        } else {
            spans.master = parameters.master();
            spans.gathered = parameters.gather_source();
            spans.scales = parameters.updated_scales();
        }
        if constexpr (N > 0) {
            for (std::size_t s = 0; s < N; ++s) {
                spans.states[s] = group->state_spans()[s].template as<Storage, A>(spans.master.size());
            }
        }
        if (const auto& rounding = state->geometry().stochastic_rounding) { spans.draws = {rounding->seed, steps}; }
        spans.state_draws = {group->state_seed(), steps};
        return spans;
    }
    /// f(std::integral_constant) of the number of states that the rule has with its options; compiled for N states
    /// and more. Not called where the rule's update takes no such number.
    template <std::size_t N = 0, class F>
    void with_states(const F& f) const {
        if constexpr (rules::UpdateOf<typename Rule::template Update<A>, A, N>) {
            if (group->states_used() == N) { return f(std::integral_constant<std::size_t, N>{}); }
        }
        if constexpr (N < Rule::state_names.size()) { with_states<N + 1>(f); }
    }
};

}  // namespace shardkit::detail
