// SPDX-License-Identifier: Apache-2.0
// Optimizers that are not the library's: what a Rule must have, and that the rest follows from it.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/core/lane_math.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace rule_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

struct OwnOptions {
    double learning_rate = 0.5;
    double weight_decay = 0;
    std::size_t states = 3;
};
void validate(const OwnOptions& options, sk::SourceLocation /*where*/) {
    if (options.learning_rate < 0) { throw std::invalid_argument("Own: negative"); }
}
struct OwnProgress {
    std::uint64_t steps = 0;
};

/// Three states, each the sum of the one before; or none, and plain descent. Not one or two.
template <class A>
struct OwnUpdate {
    A scale;
    A learning_rate;

    template <class V>
    constexpr void operator()(V& parameter, V& first, V& second, V& third, V gradient) const {
        first = first + scale * gradient;
        second = second + first;
        third = third + second;
        parameter = parameter - learning_rate * third;
    }
    template <class V>
    constexpr void operator()(V& parameter, V gradient) const {
        parameter = parameter - learning_rate * (scale * gradient);
    }
};

/// The smallest there is.
struct OwnRule {
    using Options = OwnOptions;
    using Progress = OwnProgress;
    static constexpr std::array<std::string_view, 3> state_names{"first", "second", "third"};
    static constexpr std::size_t state_count(const Options& options) { return options.states; }
    static constexpr void advance(Progress& progress, const Options& /*options*/) { ++progress.steps; }
    template <class A>
    using Update = OwnUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {static_cast<A>(scale), static_cast<A>(options.learning_rate)};
    }
};

using Own = sk::rules::RuleOptimizer<OwnRule>;

// One of the requirements left out each.
struct NoStateNames : OwnRule {
    static constexpr int state_names = 3;
};
struct NoStateCount : OwnRule {
    static constexpr void state_count(const Options& options);
};
struct NoAdvance : OwnRule {
    static constexpr void advance(const Progress& progress);
};
struct NoUpdate : OwnRule {
    template <class A>
    static constexpr OwnUpdate<float> update(const Progress& progress, const Options& options, double scale);
};
struct NoSteps : OwnRule {
    struct Progress {};
    static constexpr void advance(Progress& progress, const Options& options);
    template <class A>
    static constexpr OwnUpdate<A> update(const Progress& progress, const Options& options, double scale);
};
struct UnvalidatedOptions {
    double learning_rate = 0.5;
    double weight_decay = 0;
};
template <class OptionsType>
struct WithOptions {
    using Options = OptionsType;
    using Progress = OwnProgress;
    static constexpr std::array<std::string_view, 0> state_names{};
    static constexpr std::size_t state_count(const Options& options);
    static constexpr void advance(Progress& progress, const Options& options);
    template <class A>
    using Update = OwnUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale);
};
struct NoWeightDecay {
    double learning_rate = 0.5;
    [[maybe_unused]] friend void validate(const NoWeightDecay& /*options*/, sk::SourceLocation /*where*/) {}
};
struct Owning {
    double learning_rate = 0.5;
    double weight_decay = 0;
    Owning(const Owning& /*other*/) {}
    [[maybe_unused]] friend void validate(const Owning& /*options*/, sk::SourceLocation /*where*/) {}
};

}  // namespace

static_assert(sk::rules::OptimizerRule<sk::rules::AdamWRule> && sk::rules::OptimizerRule<sk::rules::SgdRule> &&
              sk::rules::OptimizerRule<sk::rules::LionRule>);
static_assert(sk::rules::OptimizerRule<OwnRule> && sk::rules::OptimizerRule<WithOptions<OwnOptions>>);
static_assert(!sk::rules::OptimizerRule<NoStateNames>);
static_assert(!sk::rules::OptimizerRule<NoStateCount>);
static_assert(!sk::rules::OptimizerRule<NoAdvance>);
static_assert(!sk::rules::OptimizerRule<NoUpdate>);
static_assert(!sk::rules::OptimizerRule<NoSteps>);
static_assert(!sk::rules::OptimizerRule<WithOptions<UnvalidatedOptions>>);
static_assert(!sk::rules::OptimizerRule<WithOptions<NoWeightDecay>>);
static_assert(!sk::rules::OptimizerRule<WithOptions<Owning>>);

static_assert(sk::rules::UpdateOf<sk::rules::AdamWUpdate<float>, float, 2>);
static_assert(!sk::rules::UpdateOf<sk::rules::AdamWUpdate<float>, float, 1> &&
              !sk::rules::UpdateOf<sk::rules::AdamWUpdate<float>, float, 3>);
static_assert(!sk::rules::UpdateOf<sk::rules::AdamWUpdate<float>, int, 2>);
static_assert(sk::rules::UpdateOf<sk::rules::SgdUpdate<double>, double, 0> &&
              sk::rules::UpdateOf<sk::rules::SgdUpdate<double>, double, 1>);
static_assert(sk::rules::UpdateOf<OwnUpdate<float>, float, 3> && !sk::rules::UpdateOf<OwnUpdate<float>, float, 2>);

// Rules share one frame.
template <class Optimizer>
constexpr bool shares_frame = std::is_base_of_v<sk::detail::OptimizerFrame, Optimizer>;
static_assert(shares_frame<sk::AdamW> && shares_frame<sk::SGD> && shares_frame<Own>);
// What a small group's update costs beside its elements.
static_assert(sizeof(sk::detail::AnyUpdateWork) <= 240 && sizeof(sk::detail::AnyProgress) <= 64);

TEST_CASE("a rule with three states: each is allocated, updated and listed, on every policy's shard") {
    sk::threads::run(Flat{3}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        Own optimizer{model};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, layer, 1);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        // Gradients g, g: sums are 1, 2; then 1, 3; then 1, 4 times g, and the parameter loses half of 1 + 4.
        std::array<double, 7> bias{};
        layer.read_full(Bias{}, std::span<double>(bias));
        for (std::size_t i = 0; i < 7; ++i) {
            CHECK(bias[i] == 100 + static_cast<double>(i) - 2.5 * static_cast<double>(i + 1));
        }
        for (const auto& info : optimizer.shards()) {
            const double factor = info.kind == "first" ? 2 : info.kind == "second" ? 3 : 4;
            for (std::size_t i = 0; i < info.range.size(); ++i) {
                CHECK(static_cast<const double*>(info.data)[i] ==
                      factor * static_cast<double>(info.range.begin + i + 1));
            }
        }
        CHECK(optimizer.steps(layer) == 2);
        CHECK_THROWS_WITH_AS(optimizer.set_learning_rate(-1), "Own: negative", std::invalid_argument);
    });
}

TEST_CASE("a rule may use fewer states than it has, and only numbers that its update takes") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        Own stateless{model, {.states = 0}};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 1);
        stateless.step(sk::reduce(std::move(accumulation), sk::mean));
        const auto window = layer.unshard();
        CHECK(window[Bias{}][2] == 102 - 0.5 * 3);
        CHECK(stateless.shards().empty());
        for (const std::size_t wrong : {1U, 2U, 4U}) {
            CHECK_THROWS_AS(Own(model, {.states = wrong}), std::logic_error);
        }
        CHECK_THROWS_WITH_AS(Own(model, {.states = 2}),
                             "optimizer: Rule::state_count is 2, a number of states that Rule::Update does not take",
                             std::logic_error);
    });
}

}  // namespace rule_test
