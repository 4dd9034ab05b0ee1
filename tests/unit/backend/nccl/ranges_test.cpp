// SPDX-License-Identifier: Apache-2.0
// A step that follows a schedule names its operations for NVTX, in ranges that end.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/follow/follow.hpp>
#include <shardkit/schedule/passes.hpp>

#include "paced_ranks.hpp"
#include "unit/schedule/scheduled_trainer.hpp"
#include "unit/thrown_message.hpp"

namespace ranges_test {

namespace {

namespace sk = shardkit;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using Layer = sk::Sharded<sk::Params<scheduled::Bias<float>>, sk::FullShard>;
constexpr paced_ranks::Paces eager{standin::Pace::eager, standin::Pace::eager, standin::Pace::eager};

/// What a followed schedule starts and ends.
std::vector<std::string> expected_of(const sk::Schedule& schedule,
                                     std::span<const sk::planner::GroupDescription> groups) {
    std::vector<std::string> calls;
    std::vector<std::string> windows;
    bool updates = false;
    const auto pair = [&](const std::string& name) {
        calls.push_back("start " + name);
        calls.push_back("end " + name);
    };
    for (const sk::schedule::Op& op : schedule.ops()) {
        const std::string name = sk::schedule::describe(op, groups);
        if (op.act == sk::schedule::Act::use) {
            calls.push_back("start " + name);
            windows.push_back(name);
        } else if (op.act == sk::schedule::Act::close) {
            calls.push_back("end " + windows.back());  // none are open beside each other here
        } else if (op.act == sk::schedule::Act::update) {
            if (!updates) { pair("update"); }
            updates = true;
        } else if (!sk::schedule::is_of_program(op.act) || op.act == sk::schedule::Act::norm) {
            pair(name);
        }
    }
    return calls;
}

/// What the rank that leaves is told.
const std::string left =
    "the step leaves its schedule at operation 12: unshard of 'layers.0' called, expected gradients of 'layers.2' in "
    "microbatch 0";

template <class Model, class Layers, class Optimizer>
void step(const Model& model, Layers& layers, Optimizer& optimizer, bool leaves = false) {
    sk::Accumulation accumulation{model};
    for (auto& layer : layers) { const auto window = layer.unshard(); }
    for (std::size_t l = layers.size(); l-- > 0;) {
        const auto window = layers[l].unshard();
        if (leaves) { static_cast<void>(layers[0].unshard()); }
        accumulation.add_zero(layers[l]);
    }
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
    const auto norm = sk::global_norm(reduced);
    optimizer.step(std::move(reduced), sk::clip(norm, 1.0));
}

}  // namespace

TEST_CASE("nccl: a scheduled step names every gather, reduction, window, norm and update, in ranges that end") {
    const std::string error = paced_ranks::run(Mesh(2, 1, 1), eager, {}, [](auto& rank, const auto&) {
        std::vector<Layer> layers;
        for (int i = 0; i < 3; ++i) { layers.emplace_back(rank, "layers." + std::to_string(i)); }
        sk::Model model{layers};
        sk::AdamW optimizer{model, {}};
        const auto groups = sk::describe_groups(model);
        standin::record_ranges();
        const sk::Schedule recorded = sk::schedule::record(model, [&] { step(model, layers, optimizer); });
        CHECK(standin::recorded_ranges().empty());  // nothing is followed
        const sk::Schedule schedule = sk::schedule::prefetch(recorded, groups, 1);
        {
            const auto following = sk::schedule::follow(model, schedule);
            for (int i = 0; i < 2; ++i) {
                step(model, layers, optimizer);
                const std::vector<std::string> calls = standin::recorded_ranges();
                CHECK(calls == expected_of(schedule, groups));
                REQUIRE(calls.size() > 4);
                CHECK(calls[0] == "start gather of 'layers.0', microbatch 0");
                CHECK(calls[1] == "end gather of 'layers.0', microbatch 0");
                CHECK(calls[2] == "start use of 'layers.0', microbatch 0");
            }
            // Of a step that is refused half-way nothing stays open.
            const std::string refused = thrown_message<sk::UsageError>([&] { step(model, layers, optimizer, true); });
            CHECK(has(refused, left));
            const std::vector<std::string> calls = standin::recorded_ranges();
            CHECK(calls.back() == "end use of 'layers.2', microbatch 0");
            CHECK(standin::open_ranges() == 0);
        }
    });
    CHECK(error == "");
}

TEST_CASE("nccl: a rank that leaves its schedule is told both operations and its line, and no other one hangs") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        gpu_ranks::restart(pace);
        const Mesh mesh(3, 1, 1);
        std::vector<gpu_ranks::Outcome> outcomes;
        const auto duration = rank_checks::duration_of([&] {
            const auto f = [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
                sk::MeshRank<Mesh> rank(mesh, comm, {}, world.streams());
                std::vector<Layer> layers;
                for (int i = 0; i < 3; ++i) { layers.emplace_back(rank, "layers." + std::to_string(i)); }
                sk::Model model{layers};
                sk::AdamW optimizer{model, {}};
                const sk::Schedule recorded = sk::schedule::record(model, [&] { step(model, layers, optimizer); });
                const auto following =
                    sk::schedule::follow(model, sk::schedule::prefetch(recorded, sk::describe_groups(model), 1));
                step(model, layers, optimizer);
                step(model, layers, optimizer, rank.rank() == 1);
                rank.synchronize();
            };
            outcomes = gpu_ranks::with_world(3, gpu_ranks::impatient(), f);
        });
        CHECK(duration < std::chrono::seconds(rank_checks::sanitized ? 30 : 10));
        CAPTURE(outcomes[1].text);
        CHECK(has(outcomes[1].text, left));
        CHECK(has(outcomes[1].text, "ranges_test.cpp:"));
        for (const std::size_t other : {0U, 2U}) {
            CAPTURE(outcomes[other].text);
            CHECK(outcomes[other].kind == gpu_ranks::Kind::comm);
        }
        CHECK(standin::hangs() == 0);
        CHECK(standin::live().communicators == 0);
    }
}

}  // namespace ranges_test
