// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/step/model.hpp>

/// An optimizer with two states, called as a test says at run time: what a user may call them.
namespace named_states {

namespace sk = shardkit;

struct Options {
    double learning_rate = 0.5;
    double weight_decay = 0;
};
inline void validate(const Options& /*options*/, sk::SourceLocation /*where*/) {}

/// The first state is the sum of gradients, the second one that of the first.
template <class A>
struct Update {
    A scale;
    A learning_rate;

    template <class V>
    constexpr void operator()(V& parameter, V& first, V& second, V gradient) const {
        first = first + scale * gradient;
        second = second + first;
        parameter = parameter - learning_rate * second;
    }
};

struct Rule {
    using Options = named_states::Options;
    struct Progress {
        std::uint64_t steps = 0;
    };
    /// Of one thread at a time.
    static inline std::array<std::string_view, 2> state_names{"first", "second"};
    static constexpr std::size_t state_count(const Options& /*options*/) { return 2; }
    static constexpr void advance(Progress& progress, const Options& /*options*/) { ++progress.steps; }
    template <class A>
    using Update = named_states::Update<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {static_cast<A>(scale), static_cast<A>(options.learning_rate)};
    }
};

/// @pre the names outlive it
inline auto optimizer(const sk::Model& model, std::string_view first, std::string_view second) {
    Rule::state_names = {first, second};
    return sk::rules::RuleOptimizer<Rule>(model);
}

}  // namespace named_states
