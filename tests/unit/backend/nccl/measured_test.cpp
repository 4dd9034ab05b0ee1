// SPDX-License-Identifier: Apache-2.0
// The times of a followed step on devices, whose events take them.
#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/gather_steps.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/schedule/passes.hpp>

#include "captured_step.hpp"
#include "paced_ranks.hpp"
#include "step_trainer.hpp"
#include "unit/thrown_message.hpp"

namespace measured_test {

namespace {

namespace sk = shardkit;
using sk::schedule::Act;
using sk::schedule::SpanKind;
using Mesh = sk::DeviceMesh<4>;
using Rank = sk::MeshRank<Mesh>;

/// f(trainer, schedule, streams) on every rank, the schedule with gathers ahead and reductions beside backward
/// passes.
template <class F>
void with_trainers(const std::string& policy, paced_ranks::Paces paces, const F& f) {
    CHECK(paced_ranks::run(Mesh{}, paces, {}, [&](Rank& rank, const auto& streams) {
              step_trainer::Trainer<float, Rank> trainer(rank, sk::named_policy(policy), {.microbatches = 2});
              const auto groups = sk::describe_groups(trainer.groups());
              const sk::Schedule recorded = sk::schedule::record(trainer.groups(), [&] { trainer.step(); });
              f(rank, trainer, sk::schedule::overlap_reductions(sk::schedule::prefetch(recorded, groups, 1), groups),
                streams);
          }) == "");
}

/// Each act is there once, in the order of its stream, and after what it waits for.
void check_step(const sk::schedule::MeasuredStep& step, const sk::Schedule& schedule) {
    double at = 0, computed = 0;
    std::map<std::size_t, double> computed_at;  // by operation
    std::array<double, 2> ends{};               // of gathers, of reductions
    std::vector<std::size_t> seen, expected;
    for (const sk::schedule::StepSpan& each : step.spans) {
        REQUIRE(each.op < schedule.size());
        CHECK(each.time.end > each.time.begin);
        const Act act = schedule[each.op].act;
        if (each.kind != SpanKind::communicates) {
            CHECK(each.time.begin == at);
            at = each.time.end;
            if (each.kind == SpanKind::computes) { computed_at.emplace(each.op, at); }
            computed += each.kind == SpanKind::computes ? each.time.end - each.time.begin : 0;
            continue;
        }
        seen.push_back(each.op);
        double& end = ends[act == Act::gather ? 0 : 1];
        CHECK(each.time.begin >= end);
        end = each.time.end;
        if (act != Act::reduce) { continue; }
        std::size_t add = each.op;
        while (schedule[add].act != Act::add || schedule[add].group != schedule[each.op].group) { --add; }
        REQUIRE(computed_at.contains(add));
        CHECK(each.time.begin >= computed_at.at(add));
    }
    CHECK(at == step.seconds);
    CHECK(step.compute == doctest::Approx(computed));
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (!sk::schedule::is_of_program(schedule[i].act) || schedule[i].act == Act::norm) { expected.push_back(i); }
    }
    CHECK(seen == expected);
}

}  // namespace

TEST_CASE("nccl: a measured step has each act once, in the order of its stream and behind what it waits for") {
    for (const char* const policy : {"no_shard", "shard_grad_op", "full_shard", "hybrid_shard:2"}) {
        CAPTURE(std::string(policy));
        for (const paced_ranks::Paces paces : paced_ranks::one_lazy) {
            with_trainers(policy, paces, [](Rank& rank, auto& trainer, const sk::Schedule& schedule, const auto&) {
                auto following = sk::schedule::follow(trainer.groups(), schedule);
                following.measure();
                const auto together = std::chrono::steady_clock::now();
                for (int s = 0; s < 2; ++s) {
                    trainer.step();
                    const auto all = sk::schedule::gather_steps(rank, following.measured(), together);
                    REQUIRE(all.size() == rank.world_size());
                    CHECK(all[rank.rank()].began >= together);
                    CHECK(all[rank.rank()].began < std::chrono::steady_clock::now());
                    for (const auto& of_rank : all) { check_step(of_rank, schedule); }
                }
            });
        }
    }
}

TEST_CASE("nccl: measuring changes no bit, and a step that is captured has no times") {
    std::vector<double> plain;
    for (const bool measures : {false, true}) {
        with_trainers("full_shard", paced_ranks::one_lazy[0],
                      [&](Rank& rank, auto& trainer, const sk::Schedule& schedule, const auto& streams) {
                          auto following = sk::schedule::follow(trainer.groups(), schedule);
                          if (measures) { following.measure(); }
                          for (int s = 0; s < 3; ++s) { trainer.step(); }
                          const auto values = trainer.outcome().parameters;
                          if (rank.rank() == 0 && !measures) { plain = values; }
                          if (rank.rank() == 0) { CHECK(values == plain); }
                          const step_trainer::CapturedStep graph(streams, [&] { trainer.step(); });
                          graph.launch();
                          const std::string refused =
                              thrown_message<sk::UsageError>([&] { static_cast<void>(following.measured()); });
                          CHECK(refused.find(measures ? "measured: the last step was captured into a graph, whose "
                                                        "parts have no times; expected"
                                                      : "measured: the last step was not measured; expected") !=
                                std::string::npos);
                          trainer.step();
                          if (measures) { check_step(following.measured(), schedule); }
                      });
    }
}

}  // namespace measured_test
