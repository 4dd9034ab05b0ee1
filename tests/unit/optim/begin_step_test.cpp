// SPDX-License-Identifier: Apache-2.0
// The scalars of a step, which engines compute where their kernels read them.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/engine_table.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace begin_step_test {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Weight : sk::Param<"weight", double, 3> {};

}  // namespace

TEST_CASE("ClipCoefficient: min(1, max_norm / (norm + 1e-6)), one without a norm, NaN for a NaN") {
    CHECK(sk::ClipCoefficient{}.value() == 1);
    CHECK(sk::ClipCoefficient{}.found_inf() == sk::FoundInf::no);
    std::array<double, 2> total{16, 0};
    CHECK(sk::ClipCoefficient{total.data(), 2}.value() == 2 / (4 + 1e-6));
    CHECK(sk::ClipCoefficient{total.data(), 5}.value() == 1);
    CHECK(sk::ClipCoefficient{total.data()}.value() == 1);
    CHECK(sk::ClipCoefficient{total.data()}.found_inf() == sk::FoundInf::no);
    total = {infinity, 3};
    CHECK(sk::ClipCoefficient{total.data(), 2}.value() == 0);
    CHECK(sk::ClipCoefficient{total.data(), 2}.found_inf() == sk::FoundInf::yes);
    total = {std::nan(""), 1};
    CHECK(std::isnan(sk::ClipCoefficient{total.data(), 2}.value()));
    CHECK(sk::ClipCoefficient{total.data()}.value() == 1);
}

TEST_CASE("BeginStep: divides by the loss scale as it was, then adapts it; skips only under a loss scale") {
    std::array<double, 2> total{16, 0};
    sk::detail::StepScalars scalars{9, 9};
    sk::detail::BeginStep{0.5, {total.data(), 2}, nullptr, &scalars}();
    CHECK(scalars.gradient_scale == 0.5 * (2 / (4 + 1e-6)));
    CHECK(scalars.skip == 0);

    sk::LossScaleState loss_scale({.initial = 8, .growth_interval = 1});
    sk::detail::BeginStep{0.5, {total.data(), 5}, &loss_scale, &scalars}();
    CHECK(scalars.gradient_scale == 0.0625);
    CHECK(scalars.skip == 0);
    CHECK(loss_scale.value() == 16);

    total = {infinity, 1};
    sk::detail::BeginStep{0.5, {total.data(), 5}, &loss_scale, &scalars}();
    CHECK(scalars.skip == 1);
    CHECK(loss_scale.value() == 8);
    sk::detail::BeginStep{0.5, {total.data(), 5}, nullptr, &scalars}();
    CHECK(scalars.skip == 0);
}

TEST_CASE("BeginUpdates: one update for each choice of each group; a skipped step counts nothing") {
    // The learning rate is that of the first; the betas are each one's.
    using Rule = sk::rules::AdamWRule;
    const auto& rule = sk::detail::functions_of<Rule, sk::host::AnyKernels::Loops>;
    const auto chosen = [&](double scale, const sk::AdamWOptions& its) {
        return sk::detail::ChosenOptions{scale, {&rule, its}};
    };
    const std::vector<sk::detail::ChosenOptions> options{
        chosen(1, {.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.25}),
        chosen(2, {.learning_rate = 9, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0}),
        chosen(4, {.learning_rate = 9, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0}),
        chosen(1, {.learning_rate = 9, .beta1 = 0.25, .beta2 = 0.5, .weight_decay = 0})};
    const sk::detail::RuleFunctions& functions = rule;
    std::vector<sk::detail::ParameterHypers> choices;
    for (std::uint64_t i = 0; i < 4; ++i) { choices.push_back({i, functions.beginning(sk::ElementType::fp64)}); }
    std::vector<sk::detail::AnyRuleUpdate> made(4);
    const auto updates = [&](std::size_t i) -> const sk::rules::AdamWUpdate<double>& {
        return *reinterpret_cast<const sk::rules::AdamWUpdate<double>*>(made[i].bytes);
    };
    std::vector<sk::detail::GroupUpdates> groups{{0, 2}, {2, 2}};
    const sk::detail::AnyProgress& progress = choices[0].progress;
    sk::detail::StepScalars scalars{0.125, 0};
    const sk::detail::BeginUpdatesAs<Rule> updates_begin{
        {&scalars, options.data(), groups.data(), choices.data(), made.data()}};
    const auto begin = [&] { updates_begin(0); };
    begin();
    CHECK(progress.steps == 1);
    CHECK(progress.products[0] == 0.5);
    CHECK(groups[0].steps == 1);
    CHECK(choices[1].progress.steps == 1);
    CHECK(groups[1].steps == 0);
    CHECK(updates(2).step_size == 0);
    updates_begin(1);
    CHECK(progress.steps == 1);
    CHECK(groups[1].steps == 1);
    CHECK(updates(2).step_size == 4);
    CHECK(choices[3].progress.products[0] == 0.25);
    CHECK(updates(3).beta2 == 0.5);
    CHECK(updates(3).step_size == 0.5 / 0.75);
    CHECK(updates(2).decay == 1);
    CHECK(updates(0).decay == 0.875);
    CHECK(updates(0).step_size == 1);
    CHECK(updates(0).gradient_scale == sk::rules::Factor<double>(0.125));
    CHECK(updates(1).decay == 1);
    CHECK(updates(1).step_size == 2);
    CHECK(updates(1).inverse_root == 2);
    begin();
    CHECK(progress.steps == 2);
    CHECK(progress.products[1] == 0.5625);
    CHECK(updates(1).step_size == 1 / 0.75);

    scalars = {1, 1};
    const auto before = updates(0).gradient_scale;
    begin();
    CHECK(progress.steps == 2);
    CHECK(updates(0).gradient_scale == before);
}

TEST_CASE("EngineTable: what the host gave, and what kernels wrote since") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        const std::array<sk::rules::UpdateRange, 2> runs{{{0, 5, 1}, {6, 9, 0}}};
        const sk::detail::EngineTable table{rank, std::span<const sk::rules::UpdateRange>(runs)};
        CHECK(table.size() == 2);
        CHECK(table.read(0) == runs[0]);
        CHECK(table.read(1) == runs[1]);
        table.span()[1].end = 7;
        CHECK(table.read(1) == sk::rules::UpdateRange{6, 7, 0});
    });
}

TEST_CASE("a model without groups has no norm and no optimizer") {
    using Layer = sk::Sharded<Weight, sk::NoShard>;
    std::vector<Layer> none;
    sk::Model model{none};
    CHECK_USAGE_ERROR((sk::SGD{model, {}}), "Model: this model has no groups: every range is empty");
}

}  // namespace begin_step_test
