// SPDX-License-Identifier: Apache-2.0
// The times of a step that follows a schedule.

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "unit/schedule/measured_lazily.hpp"
#include "unit/schedule/scheduled_trainer.hpp"
#include "unit/thrown_message.hpp"

namespace measured_test {

namespace {

namespace sk = shardkit;
using scheduled::Planted;
using scheduled::Run;
using Trainer = scheduled::Trainer<sk::Precision<float>>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

/// f(rank, trainer, schedule) on every rank, the schedule with gathers ahead.
template <class F>
void with_trainers(std::size_t ranks, const Run& run, const F& f) {
    sk::threads::run(Mesh(ranks, 1, 1), [&](sk::Rank& rank) {
        Trainer trainer(rank, run);
        const auto groups = sk::describe_groups(trainer.model());
        const sk::Schedule recorded = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
        f(rank, trainer, sk::schedule::gather_after_update(sk::schedule::prefetch(recorded, groups, 2), groups));
    });
}

/// What holds of any measured step, and, where collectives run in the rank's own thread, of such a one.
void check_step(const sk::schedule::MeasuredStep& step, const sk::Schedule& schedule) {
    double at = 0;
    double computed = 0;
    double communicated = 0;
    std::vector<std::size_t> communications(schedule.size());
    std::vector<sk::schedule::OpTime> waits;
    std::size_t last = 0;
    for (const sk::schedule::StepSpan& each : step.spans) {
        CHECK(each.time.end > each.time.begin);
        REQUIRE(each.op < schedule.size());
        const bool of_program = sk::schedule::is_of_program(schedule[each.op].act);
        if (each.kind == sk::schedule::SpanKind::communicates) {
            ++communications[each.op];
            communicated += each.time.end - each.time.begin;
            CHECK((!of_program || schedule[each.op].act == sk::schedule::Act::norm));
            continue;
        }
        CHECK(each.time.begin == at);  // no gap, no overlap
        at = each.time.end;
        CHECK(each.op >= last);
        last = each.op;
        if (each.kind == sk::schedule::SpanKind::computes) {
            CHECK(of_program);
            computed += each.time.end - each.time.begin;
        } else {
            waits.push_back(each.time);
        }
    }
    CHECK(at == step.seconds);
    CHECK(step.compute == doctest::Approx(computed));
    CHECK(step.communication == doctest::Approx(communicated));
    CHECK(step.exposed() == doctest::Approx(step.seconds - computed));
    for (const sk::schedule::StepSpan& each : step.spans) {
        if (each.kind != sk::schedule::SpanKind::communicates) { continue; }
        bool exposed = false;
        for (const sk::schedule::OpTime& wait : waits) {
            exposed = exposed || (wait.begin <= each.time.begin && each.time.end <= wait.end);
        }
        CHECK(exposed);
    }
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        CAPTURE(i);
        const bool communicates =
            !sk::schedule::is_of_program(schedule[i].act) || schedule[i].act == sk::schedule::Act::norm;
        CHECK(communications[i] == (communicates ? 1 : 0));
    }
}

std::vector<sk::DynamicPolicy> policies() {
    return {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
            sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
            sk::DynamicPolicy(sk::HybridShard<2>{})};
}

}  // namespace

TEST_CASE("a measured step has a time for every operation, and no moment of the rank is missing or counted twice") {
    for (const sk::DynamicPolicy& policy : policies()) {
        CAPTURE(std::string(policy.name()));
        for (const bool norm : {false, true}) {
            const Run run{.policy = policy, .microbatches = 2, .every_kind = true, .norm = norm};
            with_trainers(4, run, [](auto&, Trainer& trainer, const sk::Schedule& schedule) {
                auto following = sk::schedule::follow(trainer.model(), schedule);
                following.measure();
                for (std::size_t s = 1; s < 4; ++s) {
                    trainer.step(s);
                    check_step(following.measured(), schedule);
                }
            });
        }
    }
}

TEST_CASE("what the program does between two verbs is computation, of the verb that ends it") {
    constexpr auto pause = std::chrono::milliseconds(5);
    const Run run{.policy = sk::DynamicPolicy(sk::FullShard{})};
    with_trainers(2, run, [&](auto&, Trainer& trainer, const sk::Schedule& schedule) {
        auto following = sk::schedule::follow(trainer.model(), schedule);
        following.measure();
        std::size_t windows = 0;  // of a step: the fourth is the last block's forward pass
        trainer.step(1, Planted::nothing, [&](const void*) {
            if (++windows == 4) { std::this_thread::sleep_for(pause); }
        });
        std::size_t closes = 0;
        const sk::schedule::MeasuredStep step = following.measured();
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            if (schedule[i].act != sk::schedule::Act::close || ++closes != 4) { continue; }
            double computed = 0;
            for (const sk::schedule::StepSpan& each : step.spans) {
                if (each.op == i && each.kind == sk::schedule::SpanKind::computes) {
                    computed += each.time.end - each.time.begin;
                }
            }
            CHECK(computed >= std::chrono::duration<double>(pause).count());
        }
        CHECK(closes >= 4);
        CHECK(step.compute >= std::chrono::duration<double>(pause).count());
    });
}

TEST_CASE("a reduction that a norm or an update waits for is a wait, and no computation") {
    CHECK(measured_lazily::communication_is_waited_for(true));
    CHECK(measured_lazily::communication_is_waited_for(false));
}

TEST_CASE("measuring changes no bit") {
    for (const sk::DynamicPolicy& policy : policies()) {
        std::vector<double> plain;
        for (const bool measures : {false, true}) {
            with_trainers(4, {.policy = policy, .microbatches = 2},
                          [&](auto& rank, Trainer& trainer, const sk::Schedule& schedule) {
                              {
                                  auto following = sk::schedule::follow(trainer.model(), schedule);
                                  if (measures) { following.measure(); }
                                  for (std::size_t s = 1; s < 3; ++s) { trainer.step(s); }
                              }
                              const auto values = trainer.values();
                              if (rank.rank() != 0) { return; }
                              if (!measures) { plain = values; }
                              CHECK(values == plain);
                          });
        }
    }
}

TEST_CASE("a step that was not measured, or not to its end, has no times") {
    const Run run{.policy = sk::DynamicPolicy(sk::FullShard{})};
    with_trainers(2, run, [](auto&, Trainer& trainer, const sk::Schedule& schedule) {
        const auto refused = [](auto&& f) { return thrown_message<sk::UsageError>(f); };
        const std::vector<sk::Schedule> two{schedule, schedule};
        auto following = sk::schedule::follow(trainer.model(), two);
        const std::string none = "measured: the last step was not measured; expected a whole step behind measure()";
        const auto ask = [&] { static_cast<void>(following.measured()); };
        CHECK(refused(ask).find(none) != std::string::npos);
        trainer.step(1);
        CHECK(refused(ask).find(none) != std::string::npos);
        following.measure();
        CHECK(refused(ask).find(none) != std::string::npos);
        {
            const sk::Accumulation abandoned{trainer.model()};
            CHECK(refused(ask).find("measured: a step is under way") != std::string::npos);
            CHECK(refused([&] { following.measure(); }).find("measure: a step is under way") != std::string::npos);
        }
        CHECK(refused(ask).find(none) != std::string::npos);
        trainer.step(2);
        check_step(following.measured(), schedule);
        following.choose(1);
        CHECK(refused(ask).find(none) != std::string::npos);
        trainer.step(3);
        check_step(following.measured(), schedule);
    });
}

}  // namespace measured_test
