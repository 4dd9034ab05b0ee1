// SPDX-License-Identifier: Apache-2.0
// Batches of whole matrices in a schedule: their order and its rules, their time against a closed form, and an
// optimizer that makes what a schedule says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule.hpp>

#include "unit/thrown_message.hpp"

namespace batches_test {

namespace sk = shardkit;

namespace {

using sk::schedule::Act;
using sk::schedule::StepRule;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Up : sk::Param<"up", float, 2, 120000> {};
struct Bias : sk::Param<"bias", float, 5> {};
using Layer = sk::Params<Up, Bias>;
const Mesh mesh(2, 1, 1);

std::vector<sk::planner::GroupDescription> described() {
    std::vector<sk::planner::GroupDescription> groups;
    for (const char* path : {"a", "b", "c", "d", "e", "f"}) {
        groups.push_back(sk::describe_group<Layer, sk::FullShard>(path, {}, mesh.grid()));
        groups.back().optimizer_states = 3;
    }
    return groups;
}
sk::planner::MatrixPlan planned() {
    sk::planner::MatrixPlanner<sk::rules::MuonRule, float> planner{mesh.grid()};
    for (const auto& group : described()) { planner.add<Layer, sk::FullShard>(group.path, {}); }
    return planner.plan();
}

struct Made {
    Act act;
    std::uint32_t batch;
};
std::vector<sk::schedule::Op> ops_of(const std::vector<Made>& acts) {
    std::vector<sk::schedule::Op> ops;
    for (const auto& [act, batch] : acts) { ops.push_back({act, 0, batch}); }
    return ops;
}
/// One batch after the other.
std::vector<sk::schedule::Op> plain(std::uint32_t batches) {
    std::vector<sk::schedule::Op> ops;
    for (std::uint32_t batch = 0; batch < batches; ++batch) {
        for (const Act act : {Act::direct, Act::to_owners, Act::transform, Act::from_owners, Act::apply}) {
            ops.push_back({act, 0, batch});
        }
    }
    return ops;
}
std::vector<sk::schedule::Op> batches_of(const sk::Schedule& step) {
    std::vector<sk::schedule::Op> ops;
    std::copy_if(step.ops().begin(), step.ops().end(), std::back_inserter(ops),
                 [](const sk::schedule::Op& op) { return sk::schedule::is_of_batch(op.act); });
    return ops;
}
/// The step of the groups with these acts before its updates.
sk::Schedule with(const std::vector<sk::schedule::Op>& batches) {
    const auto groups = described();
    const sk::Schedule step = sk::schedule::layered_step(groups);
    sk::Schedule made;
    bool updates = false;
    for (const sk::schedule::Op& op : step.ops()) {
        if (op.act == Act::update && !std::exchange(updates, true)) {
            for (const sk::schedule::Op& each : batches) { made.add(each); }
        }
        made.add(op);
    }
    return made;
}
/// The rules that a step breaks, each once.
std::vector<StepRule> broken(const sk::Schedule& step) {
    std::vector<StepRule> rules;
    for (const sk::schedule::Violation& each : sk::schedule::check(step, described())) {
        if (std::find(rules.begin(), rules.end(), each.rule) == rules.end()) { rules.push_back(each.rule); }
    }
    return rules;
}

const std::vector<Made> overlapped{
    {Act::direct, 0},      {Act::to_owners, 0}, {Act::direct, 1},      {Act::to_owners, 1}, {Act::transform, 0},
    {Act::from_owners, 0}, {Act::direct, 2},    {Act::to_owners, 2},   {Act::transform, 1}, {Act::from_owners, 1},
    {Act::apply, 0},       {Act::transform, 2}, {Act::from_owners, 2}, {Act::apply, 1},     {Act::apply, 2}};

/// The host's products, which say when they are made.
struct WatchedProducts {
    std::function<void()> made;

    template <class Stream, class Product>
    void multiply(const Stream& stream, const Product& product) const {
        sk::HostProducts::multiply(stream, product);
    }
    template <class Stream, class Product>
    void gram(const Stream& stream, const Product& product) const {
        made();
        sk::HostProducts::gram(stream, product);
    }
};

/// Trains a model whose batches are `planned()`, each step by `schedule_of(recorded)`; the recorded step and the
/// values.
struct Run {
    sk::Schedule recorded;
    std::vector<std::uint64_t> exchanges;  ///< that were made before the products of each batch, in the last step
    std::vector<float> values;
    sk::schedule::MeasuredStep measured;
};
template <class ScheduleOf>
Run train(const ScheduleOf& schedule_of) {
    Run run;
    sk::threads::run(mesh, [&](auto& rank) {
        std::vector<sk::Sharded<Layer, sk::FullShard>> layers;
        for (const auto& group : described()) { layers.emplace_back(rank, std::string(group.path)); }
        sk::Model model{layers};
        model.initialize([](auto, auto, auto i) { return 1.0 / static_cast<double>(i + 2); });
        std::vector<std::uint64_t> exchanges;
        const WatchedProducts products{
            [&exchanges, &rank] { exchanges.push_back(rank.traffic().total(sk::Verb::all_to_all_uneven).calls); }};
        sk::Muon optimizer{model, products, sk::MuonOptions{.learning_rate = 0.1}};
        const auto step = [&](std::size_t number) {
            sk::Accumulation accumulation{model, 1};
            for (auto& layer : layers) {
                auto gradients = accumulation.gradients(layer);
                const auto up = gradients[Up{}];
                for (std::size_t i = 0; i < up.size(); ++i) {
                    up[i] = static_cast<float>((i * i + number + rank.rank()) % 11) - 5;
                }
                accumulation.add(std::move(gradients));
            }
            optimizer.step(std::move(accumulation), {.max_norm = 3});
        };
        const sk::Schedule recorded = sk::schedule::record(model, [&] { step(0); });
        {
            auto following = sk::schedule::follow(model, schedule_of(recorded));
            following.measure();
            exchanges.clear();
            rank.traffic().clear();
            step(1);
            exchanges.erase(std::unique(exchanges.begin(), exchanges.end()), exchanges.end());
            if (rank.rank() == 0) { run.exchanges = exchanges; }
            if (rank.rank() == 0) { run.measured = following.measured(); }
        }
        std::vector<float> up(240000);
        for (auto& layer : layers) {
            layer.read_full(Up{}, up);
            if (rank.rank() == 0) { run.values.insert(run.values.end(), up.begin(), up.end()); }
        }
        if (rank.rank() == 0) { run.recorded = recorded; }
    });
    return run;
}

}  // namespace

TEST_CASE("a batch travels to its owners while the one before it is transformed, and back while the next is") {
    const auto groups = described();
    CHECK(planned().batches.size() == 3);
    CHECK(batches_of(sk::schedule::DryStep(groups).matrices(3).schedule()) == ops_of(overlapped));
    for (const std::uint32_t batches : {0U, 1U, 2U, 7U}) {
        CAPTURE(batches);
        const auto made = batches_of(sk::schedule::DryStep(groups).matrices(batches).schedule());
        CHECK(made.size() == 5 * batches);
        CHECK(broken(with(made)).empty());
    }
    const std::string table = sk::schedule::table(with(plain(1)), groups);
    CHECK(table.find("  gather   to_owners    0           0 B  whole matrices\n") != std::string::npos);
}

TEST_CASE("check refuses batches in another order, in more slots than three, and beside updates") {
    const auto groups = described();
    CHECK(broken(with(plain(3))).empty());
    for (std::size_t at = 0; at < 5; ++at) {
        CAPTURE(at);
        auto without = plain(1);
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(at));
        CHECK(!broken(with(without)).empty());
        auto twice = plain(1);
        twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(at), twice[at]);
        CHECK(broken(with(twice)) == std::vector{StepRule::batches_in_order});
        if (at == 4) { continue; }
        auto swapped = plain(1);
        std::swap(swapped[at], swapped[at + 1]);
        CHECK(broken(with(swapped)).front() == StepRule::batches_in_order);
    }
    const std::vector<Made> four{{Act::direct, 0}, {Act::direct, 1}, {Act::direct, 2}, {Act::direct, 3}};
    CHECK(broken(with(ops_of(four))).front() == StepRule::batches_in_slots);

    auto unfinished = plain(1);
    unfinished.pop_back();
    CHECK(broken(with(unfinished)) == std::vector{StepRule::batches_before_updates});
    sk::Schedule behind = with({});
    for (const sk::schedule::Op& op : plain(1)) { behind.add(op); }
    CHECK(broken(behind) == std::vector{StepRule::batches_before_updates});
    sk::Schedule alone = sk::schedule::DryStep(groups).batch(Act::direct, 0).schedule();
    CHECK(broken(alone) == std::vector{StepRule::added_or_skipped, StepRule::batches_before_updates});
    const auto found = sk::schedule::check(with(ops_of(four)), groups);
    CHECK(describe(found.front(), with(ops_of(four)), groups)
              .find("(direct of batch 3) breaks batches_in_slots of batch 3: ") != std::string::npos);

    // Directions are made of reduced gradients.
    sk::Schedule early;
    bool reduced = false;
    const sk::Schedule bare = with({});
    for (const sk::schedule::Op& op : bare.ops()) {
        if (op.act == Act::reduce && !std::exchange(reduced, true)) {
            for (const sk::schedule::Op& each : plain(1)) { early.add(each); }
        }
        early.add(op);
    }
    const auto rules = broken(early);
    CHECK(std::count(rules.begin(), rules.end(), StepRule::reduced_before_read) == 1);
    CHECK(std::count(rules.begin(), rules.end(), StepRule::added_or_skipped) == 1);
}

TEST_CASE("simulate's time of batches is the closed form's, plain and overlapped") {
    const auto groups = described();
    const std::vector<sk::schedule::GroupSeconds> nothing(groups.size());
    for (const std::uint32_t n : {1U, 2U, 5U}) {
        CAPTURE(n);
        const std::vector<sk::schedule::BatchSeconds> seconds(n, {0.25, 2, 8, 4, 0.5});
        const sk::schedule::StepCosts costs{.groups = nothing, .batches = seconds};
        const auto time = [&](const std::vector<sk::schedule::Op>& batches) {
            return sk::schedule::simulate(with(batches), groups, mesh.grid(), costs);
        };
        const sk::schedule::StepTimes one_by_one = time(plain(n));
        CHECK(one_by_one.seconds == n * 14.75);
        CHECK(one_by_one.communication == n * 6);
        CHECK(one_by_one.compute == n * 8.75);
        CHECK(one_by_one.exposed() == n * 6);
        // Hidden is what travels, but the first way to the owners and the last way back, and the passes beside these.
        const sk::schedule::StepTimes hidden = time(batches_of(sk::schedule::DryStep(groups).matrices(n).schedule()));
        CHECK(hidden.seconds == 0.25 + 2 + n * 8 + (n > 2 ? (n - 2) * 0.75 : 0) + 4 + 0.5);
        // Where communication takes the rank's own time nothing is.
        CHECK(sk::schedule::simulate(
                  sk::schedule::on_lanes(with(ops_of(overlapped)), sk::schedule::CommunicationLanes::in_compute),
                  groups, mesh.grid(),
                  {.groups = nothing, .batches = std::vector<sk::schedule::BatchSeconds>(3, {0.25, 2, 8, 4, 0.5})})
                  .seconds == 3 * 14.75);
    }
    CHECK(thrown_message<std::invalid_argument>([&] {
              sk::schedule::simulate(with(plain(3)), groups, mesh.grid(), {nothing});
          }).find("simulate: seconds of 0 batches of matrices given, expected of batch 0 too") != std::string::npos);
    const std::vector<sk::schedule::BatchSeconds> impossible{{0, 0, -1, 0, 0}};
    CHECK(thrown_message<std::invalid_argument>([&] {
              sk::schedule::simulate(with({}), groups, mesh.grid(), {.groups = nothing, .batches = impossible});
          }).find("the transform of batch 0 takes -1 s") != std::string::npos);
}

TEST_CASE("the seconds of a plan's batches are those of the rank that takes longest") {
    const sk::planner::MatrixPlan plan = planned();
    const sk::planner::TimeModel links{sk::planner::TimeModel::links({1e-3, 1e6})};
    const auto seconds = sk::schedule::batch_seconds(plan, mesh.grid(), links, {1e9, 1e6});
    REQUIRE(seconds.size() == 3);
    // A rank has about half of the two matrices of a batch, one of which it owns.
    const auto half = static_cast<double>(described()[0].shard_numel);
    for (const sk::schedule::BatchSeconds& each : seconds) {
        CHECK(each.direct == doctest::Approx(2 * half / 1e6));
        CHECK(each.apply == each.direct);
        CHECK(each.transform == static_cast<double>(sk::rules::MuonRule::cost({2, 120000})) / 1e9);
        CHECK(each.to_owners == doctest::Approx(1e-3 + half * 4 / 1e6));
        CHECK(each.from_owners == each.to_owners);
    }
    CHECK(thrown_message<std::invalid_argument>([&] {
              sk::schedule::batch_seconds(plan, mesh.grid(), links, {});
          }).find("expected above 0") != std::string::npos);
}

TEST_CASE("an optimizer makes its batches as it is recorded, and as a schedule says; its memory is the plan's") {
    const Run usual = train([](const sk::Schedule& recorded) { return recorded; });
    CHECK(batches_of(usual.recorded) == ops_of(overlapped));
    CHECK(usual.exchanges == std::vector<std::uint64_t>{2, 4, 5});
    const auto one_by_one = [](const sk::Schedule& recorded) {
        sk::Schedule made;
        std::size_t next = 0;
        const auto batches = plain(3);
        for (const sk::schedule::Op& op : recorded.ops()) {
            made.add(sk::schedule::is_of_batch(op.act) ? batches[next++] : op);
        }
        return made;
    };
    const Run other = train(one_by_one);
    CHECK(other.values == usual.values);
    CHECK(other.exchanges == std::vector<std::uint64_t>{1, 3, 5});
    // What travels is measured in the order of the schedule.
    const sk::Schedule followed = one_by_one(usual.recorded);
    std::vector<sk::schedule::Op> travelled;
    for (const sk::schedule::StepSpan& span : other.measured.spans) {
        if (span.kind != sk::schedule::SpanKind::communicates || !sk::schedule::is_of_batch(followed[span.op].act)) {
            continue;
        }
        travelled.push_back(followed[span.op]);
    }
    CHECK(travelled == ops_of({{Act::to_owners, 0},
                               {Act::from_owners, 0},
                               {Act::to_owners, 1},
                               {Act::from_owners, 1},
                               {Act::to_owners, 2},
                               {Act::from_owners, 2}}));

    const auto refusal = [&](const auto& schedule_of) {
        return thrown_message<sk::UsageError>([&] { train(schedule_of); });
    };
    CHECK(refusal([](const sk::Schedule& recorded) {
              sk::Schedule made;
              for (const sk::schedule::Op& op : recorded.ops()) {
                  if (!sk::schedule::is_of_batch(op.act)) { made.add(op); }
              }
              return made;
          }).find("direct of batch 0 called, expected step of 'a'") != std::string::npos);
    CHECK(refusal([](const sk::Schedule& recorded) {
              sk::Schedule made;
              for (const sk::schedule::Op& op : recorded.ops()) {
                  if (op.act == Act::update && op.group == 0) {
                      for (const sk::schedule::Op& more : plain(4)) {
                          if (more.microbatch == 3) { made.add(more); }
                      }
                  }
                  made.add(op);
              }
              return made;
          }).find("the updates are made, expected direct of batch 3 before") != std::string::npos);
}

}  // namespace batches_test
