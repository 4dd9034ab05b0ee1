// SPDX-License-Identifier: Apache-2.0
// The trainer with --schedule and without.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/schedule/passes.hpp>

#include "../../examples/common/input_error.hpp"
#include "../test_size.hpp"
#include "trainings.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace schedule_test {

namespace {

using Kind = ScheduleChoice::Kind;

constexpr ScheduleChoice automatic{Kind::automatic, 0};

Options with(Options options, ScheduleChoice schedule, std::uint64_t limit = 0) {
    options.schedule = schedule;
    options.memory_limit = limit;
    return options;
}
/// A step of every kind: tp, cp, microbatches, a tied head.
Options few_steps() {
    Options options = base();
    options.mesh = {2, 1, 2};
    options.batch = 12;
    options.steps = 3;
    options.dtype = Dtype::fp32;
    options.optimizer = OptimizerKind::sgd;
    options.learning_rate = 0.1;
    return options;
}
std::string refusal_of(const Options& options) {
    try {
        make_plan(options);
    } catch (const program::InputError& error) { return error.what(); }
    return "no error";
}
std::uint64_t calls(const Results& results, const std::string& verb) {
    std::uint64_t all = 0;
    for (const auto& [of, each] : results.collectives) { all += of.second == verb ? each.calls : 0; }
    return all;
}
void check_same_bits(const Trained& one, const Trained& other) {
    CHECK(one.losses == other.losses);
    CHECK(one.grad_norms == other.grad_norms);
    REQUIRE(one.parameters.size() == other.parameters.size());
    for (std::size_t p = 0; p < one.parameters.size(); ++p) {
        CHECK(one.parameters[p].values == other.parameters[p].values);
    }
    CHECK(one.sample == other.sample);
}

}  // namespace

TEST_SUITE("gpt.schedule") {
    TEST_CASE("every schedule trains the bits of none with experts, whose tokens travel beside gathers") {
        Options options = few_steps();
        options.mesh = {2, 2, 1};
        options.microbatches = 2;
        options.model.experts = 4;
        options.ep = 2;
        options.sample = 3;
        using enum program::PolicyKind;
        for (const program::PolicyKind policy : {no_shard, shard_grad_op, full_shard}) {
            options.policy = {policy};
            CAPTURE(options.policy.text());
            const Trained none = trained(with(options, {Kind::none, 0}));
            for (const ScheduleChoice schedule : {automatic, ScheduleChoice{Kind::prefetch, 2}}) {
                check_same_bits(trained(with(options, schedule)), none);
            }
        }
    }

    TEST_CASE("every schedule trains the bits of none, for every policy, and samples them") {
        for (const std::size_t microbatches : {1U, 3U}) {
            Options options = few_steps();
            options.microbatches = microbatches;
            options.model.head = microbatches == 1 ? HeadKind::tied : HeadKind::untied;
            options.sample = 3;
            for_each_policy(options, [](const Options& each) {
                CAPTURE(each.policy.text());
                const Trained none = trained(with(each, {Kind::none, 0}));
                const std::uint64_t limit = make_plan(with(each, {Kind::none, 0})).bytes_per_rank();
                for (const Options& schedule :
                     {with(each, automatic), with(each, {Kind::prefetch, 1}), with(each, {Kind::prefetch, 3}, limit),
                      with(each, automatic, 4 * limit)}) {
                    CAPTURE(schedule.schedule.text());
                    check_same_bits(trained(schedule), none);
                }
            });
        }
    }

    TEST_CASE("one rank follows a schedule as well") {
        Options options = few_steps();
        options.mesh = {1, 1, 1};
        check_same_bits(trained(with(options, {Kind::prefetch, 1})), trained(with(options, {Kind::none, 0})));
    }

    TEST_CASE("auto takes no more memory than none, and leaves out gathers for it") {
        Options options;
        options.mesh = {2, 1, 1};
        options.model.sequence = 16;
        options.batch = 4;
        options.steps = 3;
        for (const std::size_t microbatches : {1U, 2U}) {
            options.microbatches = microbatches;
            const Options none = with(options, {Kind::none, 0});
            options.schedule = automatic;
            CHECK(make_plan(options).bytes_per_rank() <= make_plan(none).bytes_per_rank());
            check_plan(none);
            check_plan(options);
            check_plan(with(options, {Kind::prefetch, 2}));
            const Trained plain = trained(none);
            const Trained kept = trained(options);
            CHECK(calls(plain, "all_gather") - calls(kept, "all_gather") >= 3 * microbatches);
            CHECK(calls(plain, "reduce_scatter") == calls(kept, "reduce_scatter"));
        }
    }

    TEST_CASE("a memory limit is kept, and one that is too small is refused with both figures") {
        Options options;
        options.mesh = {2, 1, 1};
        options.model.sequence = 16;
        options.batch = 4;
        options.steps = 2;
        for (const ScheduleChoice schedule : {automatic, ScheduleChoice{Kind::prefetch, 3}}) {
            CAPTURE(schedule.text());
            const std::string refused = refusal_of(with(options, schedule, 1000));
            const std::string before =
                "--memory-limit 1000: with --schedule " + schedule.text() + " each rank needs at least ";
            REQUIRE(refused.starts_with(before));
            const std::uint64_t least = std::stoull(refused.substr(before.size()));
            const Options tight = with(options, schedule, least);
            const PlanSummary plan = make_plan(tight);
            CHECK(plan.bytes_per_rank() <= least);
            CHECK(plan.bytes_per_rank() < make_plan(with(options, {Kind::none, 0})).bytes_per_rank());
            check_plan(tight);
            CHECK(refusal_of(with(options, schedule, least - 1)) ==
                  "--memory-limit " + std::to_string(least - 1) +
                      refused.substr(std::string("--memory-limit 1000").size()));
        }
        const std::uint64_t needed = make_plan(with(options, {Kind::none, 0})).bytes_per_rank();
        CHECK(refusal_of(with(options, {Kind::none, 0}, needed)) == "no error");
        CHECK(refusal_of(with(options, {Kind::none, 0}, needed - 1)).find(std::to_string(needed) + " bytes") !=
              std::string::npos);
    }

    TEST_CASE("auto follows what waits least in simulate, and says why; where nothing waits less, nothing") {
        struct Case {
            program::PolicyKind policy;
            std::string follows;
            std::string why;
        };
        using enum program::PolicyKind;
        const auto check = [](const Options& options, const std::string& follows, const std::string& why) {
            const PlanSummary plan = make_plan(options);
            CAPTURE(plan.chosen.why);
            CHECK(plan.chosen.follows == follows);
            CHECK(plan.chosen.why.find(why) != std::string::npos);
            CHECK(plan.chosen.schedule.has_value() == (follows != "none"));
            CHECK(plan.chosen.ahead == (follows.find("prefetch") != std::string::npos));
            return plan.bytes_per_rank();
        };
        Options options;
        options.mesh = {4, 1, 1};
        options.batch = 8;
        options.schedule = automatic;
        for (const Case& each : {Case{no_shard, "none", "no schedule is predicted to wait less"},
                                 Case{shard_optimizer, "none", "no schedule is predicted to wait less"},
                                 Case{shard_grad_op, "none", "no schedule is predicted to wait less"},
                                 Case{full_shard, "keep_gathered", "of that without a schedule"}}) {
            options.policy = {each.policy};
            for (const EngineKind engine : {EngineKind::threads, EngineKind::mpi}) {
                options.engine = engine;
                check(options, each.follows, each.why);
            }
        }
        // A rank whose communication has a processor: gathers start ahead, in no more memory than none takes.
        options.spare_processor = true;
        check(with(options, {Kind::none, 0}), "none", "asked for");
        check(with(options, {Kind::prefetch, 2}), "prefetch:2", "asked for");
        const std::uint64_t none = make_plan(with(options, {Kind::none, 0})).bytes_per_rank();
        CHECK(check(options, "prefetch:1, keep_gathered", "of that without a schedule") <= none);
        options.policy = {no_shard};
        check(options, "prefetch:1, keep_gathered", "of that without a schedule");
        options.engine = EngineKind::threads;
        check(options, "prefetch:1, keep_gathered", "of that without a schedule");
        options.spare_processor = false;
        check(options, "none", "no schedule is predicted to wait less");
        options.mesh = {1, 1, 1};
        options.policy = {full_shard};
        check(options, "none", "a single rank waits for no other");
        // A limit below what none takes is kept by a schedule, though nothing is gained.
        options.mesh = {2, 1, 1};
        const std::uint64_t plain = make_plan(with(options, {Kind::none, 0})).bytes_per_rank();
        CHECK(check(with(options, automatic, plain - 1), "keep_gathered",
                    "without a schedule the step exceeds --memory-limit") < plain);
    }

    TEST_CASE("auto follows a step of thousands of windows too, in no more memory than none") {
        Options options;
        options.mesh = {2, 1, 1};
        const std::size_t layers = test_size::reduced() ? 200 : 600;
        options.model.layers = layers;
        options.model.width = 8;
        options.batch = 16;
        options.microbatches = 8;
        const PlanSummary none = make_plan(with(options, {Kind::none, 0}));
        const PlanSummary kept = make_plan(with(options, automatic));
        REQUIRE(kept.chosen.schedule);
        CHECK(kept.bytes_per_rank() <= none.bytes_per_rank());
        std::size_t gathers = 0;
        for (const sk::schedule::Op& op : kept.chosen.schedule->ops()) {
            gathers += op.act == sk::schedule::Act::gather ? 1 : 0;
        }
        // Each block is used twice in each microbatch, in the memory of the two largest groups.
        CHECK(gathers < 2 * layers * 8);
    }
}

}  // namespace schedule_test
