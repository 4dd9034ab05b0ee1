// SPDX-License-Identifier: Apache-2.0
// Gradient release as a pass of the schedule: the steps that trainers make with step_in_backward, their rules, their
// bytes and their times.
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/check.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>
#include <shardkit/schedule/simulate.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "unit/sharded/chosen.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace update_in_backward_test {

namespace {

struct Weight : sk::Param<"weight", float, 64, 32> {};
using Mixed = sk::Precision<float, sk::bf16, float, float>;
constexpr std::size_t full = 64 * 32;

template <class Policy, class Precision>
constexpr auto released(sk::GradientRelease release = sk::GradientRelease::at_update) {
    constexpr std::array<const char*, 4> names{"a", "b", "c", "d"};
    std::array<sk::planner::GroupDescription, 4> groups;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        sk::ShardedOptions<sk::Params<Weight>, Policy> options;
        options.gradient_release = release;
        groups[g] = sk::describe_group<Weight, Policy, Precision>(names[g], {}, sk::DeviceMesh<2>{}.grid(), options);
    }
    return groups;
}
constexpr sk::schedule::LayeredStep no_norm{.norms = 0};
/// The arena of a step whose updates are at its end, and of one whose updates are in its backward pass.
template <class Policy, class Precision>
constexpr std::array<std::uint64_t, 2> arenas() {
    const auto groups = released<Policy, Precision>();
    const sk::Schedule step = sk::schedule::layered_step(groups, no_norm);
    const sk::Schedule early = sk::schedule::update_in_backward(step, groups);
    return {sk::schedule::arena_bytes(step, groups).value, sk::schedule::arena_bytes(early, groups).value};
}

// In place, a group's gradients are its sums, which its update releases. Only one group's are left of four.
static_assert(arenas<sk::NoShard, sk::Precision<float>>() == std::array<std::uint64_t, 2>{4 * full * 4, full * 4});
static_assert(arenas<sk::ShardOptimizer, sk::Precision<float>>() ==
              std::array<std::uint64_t, 2>{4 * full * 4, full * 4});
// The shard of the sums lies beside the bf16 gradients, which the reduction releases.
static_assert(arenas<sk::ShardGradOp, Mixed>() ==
              std::array<std::uint64_t, 2>{full * 2 + 4 * (full / 2 * 4), full * 2 + full / 2 * 4});
// While a group is reduced there are no gathered parameters; before, there are those of two groups' windows.
static_assert(arenas<sk::FullShard, sk::Precision<float>>()[1] == 2 * full * 4);
constexpr auto released_groups = released<sk::ShardOptimizer, sk::Precision<float>>();
static_assert(sk::schedule::check(sk::schedule::update_in_backward(
                                      sk::schedule::layered_step(released_groups, no_norm), released_groups),
                                  released_groups)
                  .empty());

/// The rules that a step of the released groups breaks, by name.
std::string broken(const sk::Schedule& step) {
    std::string said;
    for (const sk::schedule::Violation& violation : sk::schedule::check(step, released_groups)) {
        said += std::string(sk::schedule::name(violation.rule)) + ' ';
    }
    return said;
}

}  // namespace

TEST_CASE("a recorded step in backward is the pass of the plain one, and the dry step's, for every policy") {
    using Layer = sk::Sharded<Weight, sk::DynamicPolicy, Mixed>;
    for (const sk::DynamicPolicy& policy :
         {toy::chosen(sk::NoShard{}), toy::chosen(sk::ShardOptimizer{}), toy::chosen(sk::ShardGradOp{}),
          toy::chosen(sk::FullShard{}), toy::chosen(sk::HybridShard<2>{})}) {
        CAPTURE(policy.values(4).name);
        sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
            std::vector<Layer> layers;
            for (int l = 0; l < 3; ++l) {
                layers.emplace_back(
                    rank, "layers." + std::to_string(l), Layer::Tensors{},
                    Layer::Options{.policy = policy, .gradient_release = sk::GradientRelease::at_update});
            }
            sk::Model model{layers};
            sk::SGD optimizer{model, {.learning_rate = 0.5}};
            const auto step = [&] {
                sk::Accumulation accumulation{model};
                optimizer.step_in_backward(accumulation);
                for (std::size_t l = 0; l + 1 < layers.size(); ++l) { const auto window = layers[l].unshard(); }
                for (std::size_t l = layers.size(); l-- > 0;) {
                    auto window = layers[l].unshard();
                    auto gradients = accumulation.gradients(layers[l]);
                    for (auto& element : gradients[Weight{}]) { element = sk::bf16(1.0F); }
                    layers[l].reshard(std::move(window));
                    accumulation.add(std::move(gradients));
                }
                optimizer.step(std::move(accumulation));
            };
            const sk::Schedule recorded = sk::schedule::record(model, step);
            const auto groups = sk::describe_groups(model);
            CHECK(recorded == sk::schedule::update_in_backward(sk::schedule::layered_step(groups, no_norm), groups));
            sk::schedule::DryStep dry(groups);
            dry.step_in_backward().unshard(0).reshard(0).unshard(1).reshard(1);
            for (const std::size_t l : {2U, 1U, 0U}) { dry.unshard(l).gradients(l).reshard(l).add(l); }
            CHECK(dry.reduce().step().schedule() == recorded);
            CHECK(sk::schedule::check(recorded, groups).empty());
            // One group's buffers, as the groups take turns in them.
            const sk::planner::MemoryPlan plain =
                sk::planner::plan_memory(groups, {.in_flight = 1, .norms_per_step = 0});
            CHECK(sk::schedule::plan(recorded, groups, rank.grid()).memory.arena <=
                  plain.gather_buffers * 2 + plain.gradient_buffers);
            CHECK(
                has(thrown_message<sk::UsageError>([&] { static_cast<void>(sk::schedule::follow(model, recorded)); }),
                    "'layers.0': follow of a group with GradientRelease::at_update, expected never: a step that "
                    "follows a schedule makes its updates together"));
            CHECK(optimizer.steps(layers[0]) == 1);
        });
    }
}

TEST_CASE("a step that needs all gradients at once is not released") {
    const auto refused = [](const sk::Schedule& step) {
        return thrown_message<std::invalid_argument>(
            [&] { static_cast<void>(sk::schedule::update_in_backward(step, released_groups)); });
    };
    CHECK(has(refused(sk::schedule::layered_step(released_groups)),
              ", norm, needs the gradients of all groups before the first update, expected a step without"));
    sk::schedule::DryStep matrices(released_groups);
    matrices.add_zero(0).matrices(1).update(0);
    CHECK(has(refused(matrices.schedule()), ", direct, needs the gradients of all groups before the first update"));
}

TEST_CASE("what a step in backward must not do is found by the check") {
    using enum sk::schedule::Act;
    const auto step = [] {
        sk::schedule::DryStep made(released_groups);
        made.step_in_backward();
        for (const std::size_t g : {3U, 2U, 1U, 0U}) { made.unshard(g).gradients(g).reshard(g).add(g); }
        return made;
    };
    CHECK(broken(step().schedule()) == "");
    CHECK(has(broken(step().unshard(2).reshard(2).schedule()), "windows_before_update "));
    CHECK(broken(step().global_norm().schedule()) == "norm_before_updates ");
    CHECK(broken(step().gradients(1).add(1).schedule()) != "");
    // An update in front of its reduction reads what is not reduced; one that is missing never comes.
    sk::Schedule early = step().schedule();
    std::size_t at = 0;
    while (early[at].act != update) { ++at; }
    early.move(at, at - 1);
    CHECK(has(broken(early), "reduced_before_read "));
    sk::schedule::DryStep one(released_groups);
    one.add_zero(0).skip(1).skip(2).add_zero(3).update(0);
    CHECK(broken(one.schedule()) == "update_once ");
}

TEST_CASE("an update in backward waits for its reduction, and the next group's gradients for the update") {
    const auto groups = released<sk::ShardOptimizer, sk::Precision<float>>();
    constexpr auto mesh = sk::DeviceMesh<2>{}.grid();
    const std::vector<sk::schedule::GroupSeconds> seconds(4, sk::schedule::GroupSeconds{0, 4, 1});
    const auto of = [&](const sk::Schedule& step) {
        // A reduce-scatter, or a gather, of one second.
        return sk::schedule::simulate(step, groups, mesh,
                                      {seconds, {sk::planner::TimeModel::links({0, full * 4 / 2})}});
    };
    const sk::Schedule plain = sk::schedule::layered_step(groups, no_norm);
    const sk::schedule::StepTimes early = of(sk::schedule::update_in_backward(plain, groups));
    CHECK(early.compute == 4 * (4 + 1));
    // Each reduction lies between a backward pass and its update.
    CHECK(early.exposed() >= 4);
    // Moved behind the next backward pass, all but the last are hidden, and two groups' gradients exist at once.
    const sk::Schedule overlapped =
        sk::schedule::update_in_backward(sk::schedule::overlap_reductions(plain, groups), groups);
    CHECK(sk::schedule::check(overlapped, groups).empty());
    CHECK(of(overlapped).seconds <= early.seconds);
    CHECK(sk::schedule::arena_bytes(overlapped, groups) == sk::ByteCount(2 * full * 4));
}

}  // namespace update_in_backward_test
