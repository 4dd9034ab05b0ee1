// SPDX-License-Identifier: Apache-2.0
// Whoever knows when a step communicates knows it from the step machine: a fact that is taken out of the machine is
// missed by every reader that goes by it, and by no other. The library's functions are renamed while their header is
// read, and ones that a test changes take their places; so this is a program of its own.
#define apply_act apply_act_of_the_library
#define apply_finish apply_finish_of_the_library
#define apply_end apply_end_of_the_library
#define due_reduction due_reduction_of_the_library
#define due_gather due_gather_of_the_library
#include <shardkit/machine/step_machine.hpp>
#undef apply_act
#undef apply_finish
#undef apply_end
#undef due_reduction
#undef due_gather

#include <functional>
#include <optional>
#include <string>
#include <type_traits>

namespace planted {
using shardkit::detail::Applied;
using shardkit::detail::GroupRows;
using shardkit::detail::GroupStep;
/// What is done to the machine's word on an act.
inline std::function<void(Applied& made, const GroupStep& its, shardkit::schedule::Act act)> change;
inline bool without_due_gather = false;
inline std::optional<shardkit::schedule::Act> without_due;
inline std::optional<shardkit::schedule::StepRule> without_rule;

constexpr Applied without(Applied made) {
    if (std::is_constant_evaluated() || !without_rule) { return made; }
    shardkit::detail::BrokenRules left;
    for (const shardkit::schedule::StepRule rule : made.broken) { left.require(rule == *without_rule, rule); }
    made.broken = left;
    return made;
}
}  // namespace planted

namespace shardkit::detail {
constexpr Applied apply_act(const GroupStep& its, Act act, const GroupRows& rows, std::uint32_t microbatch) {
    Applied made = planted::without(apply_act_of_the_library(its, act, rows, microbatch));
    if (!std::is_constant_evaluated() && planted::change) { planted::change(made, its, act); }
    return made;
}
constexpr Applied apply_act(const GroupStep& its, Act act, const GroupRows& rows) {
    return apply_act(its, act, rows, act == Act::reduce ? its.added - 1 : its.added);
}
constexpr Applied apply_finish(const GroupStep& its) { return planted::without(apply_finish_of_the_library(its)); }
constexpr Applied apply_end(const GroupStep& its, const GroupRows& rows, bool updates) {
    return planted::without(apply_end_of_the_library(its, rows, updates));
}
constexpr std::optional<Act> due_reduction(const GroupStep& its, const GroupRows& rows) {
    const std::optional<Act> due = due_reduction_of_the_library(its, rows);
    return !std::is_constant_evaluated() && due == planted::without_due ? std::nullopt : due;
}
constexpr bool due_gather(const GroupStep& its, const GroupRows& rows) {
    if (!std::is_constant_evaluated() && planted::without_due_gather) { return false; }
    return due_gather_of_the_library(its, rows);
}
}  // namespace shardkit::detail

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

namespace sk = shardkit;

namespace facts_test {

namespace {

using sk::schedule::Act;
using sk::schedule::StepRule;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Weight : sk::Param<"weight", float, 96> {};
using Half = sk::Precision<float, sk::bf16, float, float>;

/// FullShard within one rank of two, so that what is reduced is summed further, and its addends lie beside the sums.
const sk::HybridShard<1> replicas;
/// Released at the update: what it makes stale is gathered once.
struct AtUpdate : sk::FullShard {
    static constexpr std::string_view name = "at_update";
    static constexpr sk::Release release = sk::Release::at_update;
};

const Mesh mesh(2, 1, 1);

template <class Policy>
std::vector<sk::planner::GroupDescription> described(const Policy& policy = {}) {
    return {sk::describe_group<Weight, Policy, Half>("a", {}, mesh.grid(), policy),
            sk::describe_group<Weight, Policy, Half>("b", {}, mesh.grid(), policy)};
}
sk::Schedule step_of(std::span<const sk::planner::GroupDescription> groups) {
    return sk::schedule::layered_step(groups, {.microbatches = 2});
}
/// Each policy with the schedule of its plain step, made while nothing is taken out.
struct Model {
    std::vector<sk::planner::GroupDescription> groups;
    sk::Schedule step;
};
const std::vector<Model>& models() {
    static const std::vector<Model> all = [] {
        std::vector<Model> made;
        for (auto& groups : {described<sk::FullShard>(), described<AtUpdate>(), described(replicas),
                             described<sk::ShardOptimizer>(), described<sk::NoShard>()}) {
            made.push_back({groups, step_of(groups)});
        }
        return made;
    }();
    return all;
}

/// Steps in which each rule of one group's is broken.
const std::vector<sk::Schedule>& broken_steps() {
    static const std::vector<sk::Schedule> all = [] {
        const auto of = [](std::vector<Act> acts) {
            sk::Schedule step;
            std::uint32_t added = 0;
            for (const Act act : acts) {
                step.add({act, 0, act == Act::reduce || act == Act::all_reduce ? added - 1 : added});
                added += act == Act::add ? 1U : 0U;
            }
            return step;
        };
        std::vector<sk::Schedule> made{of({Act::use, Act::close}),
                                       of({Act::gather, Act::use, Act::gather, Act::close}),
                                       of({Act::gather}),
                                       of({Act::close}),
                                       of({Act::gather, Act::use}),
                                       of({Act::skip, Act::zero}),
                                       of({Act::add}),
                                       of({Act::zero, Act::zero, Act::add, Act::reduce}),
                                       of({Act::reduce}),
                                       of({Act::norm}),
                                       of({Act::zero, Act::add}),
                                       of({Act::zero, Act::add, Act::reduce, Act::update, Act::update}),
                                       of({Act::zero, Act::add, Act::reduce, Act::update, Act::gather, Act::use})};
        sk::Schedule out_of_order;
        out_of_order.add({Act::zero, 0, 1});
        made.push_back(out_of_order);
        return made;
    }();
    return all;
}

// What each reader says.

std::string check() {
    std::string said;
    auto frozen = models()[0].groups;
    for (auto& group : frozen) { group.trainable = false; }
    auto sliced = models()[0].groups;
    for (auto& group : sliced) { group.policy.slices = 4; }
    for (const sk::Schedule& step : broken_steps()) {
        for (const auto& groups : {models()[0].groups, models()[4].groups, frozen, sliced}) {
            for (const sk::schedule::Violation& violation : sk::schedule::check(step, groups)) {
                said += sk::schedule::describe(violation, step, groups) + '\n';
            }
        }
    }
    return said;
}
/// `of_model`, of all models.
template <class OfModel>
std::string each(OfModel of_model) {
    std::string said;
    for (const Model& model : models()) { said += of_model(model) + '\n'; }
    return said;
}
std::string dry_step() {
    return each([](const Model& model) { return std::to_string(sk::schedule::hash(step_of(model.groups))); });
}
std::string slots() {
    return each([](const Model& model) {
        std::string said;
        for (const auto& slot : sk::detail::slots_of(model.step, model.groups)) {
            said += std::to_string(static_cast<int>(slot.use)) + ": " + std::to_string(slot.begin) + "-" +
                    std::to_string(slot.end) + ' ';
        }
        return said;
    });
}
std::string simulated() {
    const std::array seconds{sk::schedule::GroupSeconds{1, 2, 0}, sk::schedule::GroupSeconds{1, 2, 0}};
    return each([&](const Model& model) {
        const sk::schedule::StepTimes times =
            sk::schedule::simulate(model.step, model.groups, mesh.grid(),
                                   {.groups = seconds, .links = {sk::planner::TimeModel::links({0, 100})}});
        return std::to_string(times.communication) + " of " + std::to_string(times.seconds);
    });
}
std::string traffic(const sk::planner::TrafficPlan& plan) {
    std::string said;
    for (const sk::Verb verb : sk::planner::TrafficPlan::verbs) {
        said += std::to_string(plan.total(verb).calls) + ' ';
    }
    return said;
}
std::string scheduled_plan() {
    return each([](const Model& model) {
        const sk::Plan made = sk::schedule::plan(model.step, model.groups, mesh.grid());
        return traffic(made.traffic) + std::to_string(made.zeroed.value);
    });
}
std::string plan() {
    return each([](const Model& model) {
        const sk::Plan made = sk::plan(model.groups, mesh.grid(), {.microbatches = 2});
        return traffic(made.traffic) + std::to_string(made.memory.total().value) + ' ' +
               std::to_string(made.zeroed.value);
    });
}
/// What a verb throws, without its place.
template <class F>
std::string thrown(F f) {
    try {
        f();
    } catch (const sk::UsageError& error) {
        const std::string text = error.what();
        return text.substr(0, text.rfind(" (")) + '\n';
    } catch (const std::exception&) { return "another exception\n"; }
    return "nothing\n";
}
/// The first element of the rank's own shard.
template <class Layer>
double updated_to(Layer& layer) {
    const std::span<const typename Layer::Precision::Gather> updated =
        sk::spi::group(layer).parameters().gather_source();
    return static_cast<double>(updated[0]);
}
/// What real groups communicate in two steps, of which the second is counted, and what of their buffers is free.
template <class Policy>
std::string calls_of(const Policy& policy, bool follows, const sk::Schedule& schedule) {
    std::string said;
    sk::threads::run(mesh,
                     [&](auto& rank) {
                         using Layer = sk::Sharded<Weight, Policy, Half>;
                         std::string text;
                         Layer a{rank, "a", {}, {policy}};
                         Layer b{rank, "b", {}, {policy}};
                         sk::Model model{a, b};
                         sk::SGD optimizer{model, {.learning_rate = 1}};
                         const auto step = [&] {
                             sk::Accumulation accumulation{model, 2};
                             for (int m = 0; m < 2; ++m) {
                                 { const auto window = a.unshard(); }
                                 for (Layer* layer : {&b, &a}) {
                                     auto window = layer->unshard();
                                     auto gradients = accumulation.gradients(*layer);
                                     for (auto& gradient : gradients[Weight{}]) { gradient = sk::bf16(1.0F); }
                                     layer->reshard(std::move(window));
                                     accumulation.add(std::move(gradients));
                                 }
                             }
                             auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                             static_cast<void>(sk::global_norm(reduced));
                             optimizer.step(std::move(reduced));
                         };
                         text += thrown([&] {
                             if (follows) {
                                 const auto following = sk::schedule::follow(model, schedule);
                                 step();
                                 rank.traffic().clear();
                                 step();
                             } else {
                                 step();
                                 rank.traffic().clear();
                                 step();
                             }
                         });
                         for (const sk::Verb verb : sk::planner::TrafficPlan::verbs) {
                             text += std::to_string(rank.traffic().total(verb).calls) + ' ';
                         }
                         text += std::to_string(updated_to(a));
                         if (rank.rank() == 0) { said = text; }
                     },
                     {.in_flight = 1});
    return said + '\n';
}
std::string groups() {
    return calls_of(sk::FullShard{}, false, {}) + calls_of(AtUpdate{}, false, {}) + calls_of(replicas, false, {}) +
           calls_of(sk::ShardOptimizer{}, false, {}) + calls_of(sk::NoShard{}, false, {});
}
std::string followed() {
    return calls_of(sk::FullShard{}, true, models()[0].step) + calls_of(AtUpdate{}, true, models()[1].step) +
           calls_of(replicas, true, models()[2].step) + calls_of(sk::ShardOptimizer{}, true, models()[3].step) +
           calls_of(sk::NoShard{}, true, models()[4].step);
}
/// What groups refuse: of gradients without memory, of which a verb that is let through would write some.
std::string guards() {
    std::string said;
    const sk::SourceLocation here = sk::SourceLocation::current();
    const auto in_step = [&](bool trainable, auto verbs) {
        auto group = models()[0].groups[0];
        group.trainable = trainable;
        const sk::detail::GroupRows rows(group);
        sk::detail::StepState step(rows);
        step.begin("a", here);
        said += thrown([&] { verbs(step); });
    };
    in_step(false, [&](auto& step) { step.hand_out("a", "gradients", here); });
    in_step(true, [&](auto& step) {
        step.skip();
        step.hand_out("a", "gradients", here);
    });
    in_step(true, [&](auto& step) {
        step.hand_out("a", "gradients", here);
        step.hand_out("a", "gradients", here);
    });
    in_step(true, [&](auto& step) { step.finish("a", here); });
    in_step(true, [&](auto& step) {
        step.hand_out("a", "gradients", here);
        step.add();
        step.hand_out("a", "gradients", here);
        step.drop();
        step.finish("a", here);
    });
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> group{rank, "a"};
        const auto window = group.unshard();
        said += thrown([&] { group.initialize([](auto, auto, std::uint64_t) { return 0.0; }); });
    });
    return said;
}

const std::map<std::string, std::string (*)()> readers{{"check", check},
                                                       {"dry step", dry_step},
                                                       {"slots", slots},
                                                       {"simulate", simulated},
                                                       {"scheduled plan", scheduled_plan},
                                                       {"plan", plan},
                                                       {"groups", groups},
                                                       {"follow", followed},
                                                       {"guards", guards}};

std::map<std::string, std::string> all_said() {
    std::map<std::string, std::string> said;
    for (const auto& [name, reader] : readers) { said[name] = reader(); }
    return said;
}
void reset() {
    planted::change = nullptr;
    planted::without_due_gather = false;
    planted::without_due.reset();
    planted::without_rule.reset();
}
/// Which readers miss what `plant` takes out.
template <class Plant>
std::string missed_by(Plant plant, const std::string& not_asked = "") {
    static const auto whole = all_said();
    plant();
    std::string missed;
    for (const auto& [name, reader] : readers) {
        if (name != not_asked && reader() != whole.at(name)) { missed += (missed.empty() ? "" : ", ") + name; }
    }
    reset();
    return missed;
}
/// Of an act, `change`.
template <class Change>
auto of(Act act, Change change) {
    return [=] {
        planted::change = [=](sk::detail::Applied& made, const sk::detail::GroupStep& its, Act now) {
            if (now == act) { change(made, its); }
        };
    };
}

}  // namespace

TEST_CASE("a fact that is taken out of the step machine is missed by every reader that goes by it") {
    const auto silent = [](auto& made, const auto&) { made.calls = {}; };
    CHECK(missed_by([] {}) == "");
    // What communicates.
    CHECK(missed_by(of(Act::gather, silent)) == "follow, groups, plan, scheduled plan, simulate");
    CHECK(missed_by(of(Act::reduce, silent)) == "follow, groups, plan, scheduled plan, simulate");
    CHECK(missed_by(of(Act::all_reduce, silent)) == "follow, groups, plan, scheduled plan, simulate");
    // When it does.
    CHECK(missed_by([] { planted::without_due_gather = true; }) == "dry step, follow, groups, plan");
    CHECK(missed_by([] { planted::without_due = Act::reduce; }) == "dry step, groups, plan");
    CHECK(missed_by([] { planted::without_due = Act::all_reduce; }) == "dry step, groups, plan");
    CHECK(missed_by(of(Act::gather, [](auto& made, const auto& its) { made.next.current = its.current; })) ==
          "check, dry step, follow, groups, plan");
    CHECK(missed_by(of(Act::update, [](auto& made, const auto& its) { made.next.current = its.current; })) ==
          "follow, groups");
    CHECK(missed_by(of(Act::reduce, [](auto& made, const auto&) { made.next.reductions = 0; })) ==
          "follow, groups, plan, simulate, slots");
    // Which buffers there are.
    CHECK(missed_by(of(Act::gather, [](auto& made, const auto&) { made.takes = false; }),
                    "follow") == "simulate, slots");  // which would gather into no memory
    CHECK(missed_by(of(Act::zero, [](auto& made, const auto&) { made.takes = false; })) == "simulate, slots");
    CHECK(missed_by(of(Act::close, [](auto& made, const auto&) { made.gives_back = false; })) ==
          "dry step, groups, plan");
    CHECK(missed_by(of(Act::reduce, [](auto& made, const auto&) { made.gives_back = false; })) == "groups");
    CHECK(missed_by(of(Act::reduce, [](auto& made, const auto&) { made.takes_addend = false; })) ==
          "plan, simulate, slots");
    CHECK(missed_by(of(Act::reduce, [](auto& made, const auto&) { made.carry = {1, 1}; })) == "follow, groups");
    CHECK(missed_by(of(Act::zero, [](auto& made, const auto&) { made.begins_sum = false; })) ==
          "plan, scheduled plan");
}

TEST_CASE(
    "a rule that is taken out of the step machine is missed by the check, and by the groups that refuse by it") {
    const std::set<StepRule> of_groups{StepRule::gradients_of_trainable, StepRule::gradients_of_step,
                                       StepRule::add_before_zero,        StepRule::added_or_skipped,
                                       StepRule::reduced_before_read,    StepRule::windows_end_in_step};
    const std::set<StepRule> between_groups{StepRule::group_exists, StepRule::norm_before_updates,
                                            StepRule::batches_in_order, StepRule::batches_in_slots,
                                            StepRule::batches_before_updates};
    for (std::size_t i = 0; i < sk::schedule::step_rule_count; ++i) {
        const auto rule = static_cast<StepRule>(i);
        if (between_groups.contains(rule)) { continue; }
        CAPTURE(sk::schedule::name(rule));
        CHECK(missed_by([&] { planted::without_rule = rule; }) ==
              (of_groups.contains(rule) ? "check, guards" : "check"));
    }
}

}  // namespace facts_test
