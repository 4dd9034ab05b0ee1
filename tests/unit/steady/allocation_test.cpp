// SPDX-License-Identifier: Apache-2.0
#include "unit/steady/allocation_ledger.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/peak.hpp>

#include "unit/backend/overlaps.hpp"
#include "unit/optim/launches/counting_device.hpp"
#include "unit/sharded/chosen.hpp"
#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/trainer.hpp"

namespace sk = shardkit;

namespace allocation_test {

namespace {

/// Counts what each rank's thread allocates from the third step to the end of the last one.
struct SteadyCount {
    std::vector<std::size_t> before;
    std::vector<std::size_t> after;

    explicit SteadyCount(std::size_t world) : before(world, 0), after(world, 1) {}
    toy::Hooks hooks(std::size_t steps) {
        return {.before_step = [this, steps](std::size_t rank, std::size_t step) {
            if (step == 2) { before[rank] = steady::account.allocations; }
            if (step == steps) { after[rank] = steady::account.allocations; }
        }};
    }
};

toy::Training training(toy::Rule rule) {
    return {.steps = 5, .samples = 24, .microbatches = 3, .rule = rule, .learning_rate = 0.01, .clip = 1};
}

template <class Precision, class Policy>
void check_steady(toy::Mesh mesh, Policy policy, const sk::threads::LaunchOptions& launch = {}) {
    CAPTURE(Policy::name);
    for (const toy::Rule rule : {toy::Rule::adamw, toy::Rule::momentum}) {
        SteadyCount count(mesh.size());
        toy::train<Precision>(mesh, policy, training(rule), count.hooks(5), {}, launch);
        CHECK(count.before[0] > 0);
        CHECK(count.after == count.before);
    }
}

struct Wide : sk::Param<"wide", float, 96, 64> {};
struct Narrow : sk::Param<"narrow", float, 96> {};
using Group = sk::Params<Wide, Narrow>;

/// Bytes in blocks of at least 4 KiB that a rank's thread holds after steps of six equal groups, two microbatches
/// each, in_flight = 2, AdamW. Every buffer of the groups is that large; nothing else is.
template <class Precision, class Policy, class Rank>
std::size_t held_by(Rank& rank, Policy policy) {
    const std::size_t at_start = steady::account.large_bytes;
    using Layer = sk::Sharded<Group, Policy, Precision>;
    std::vector<Layer> layers;
    for (int i = 0; i < 6; ++i) {
        layers.emplace_back(rank, "layers." + std::to_string(i), sk::Shapes<Group>{},
                            typename Layer::Options{policy, {}, {}});
        layers.back().initialize([](auto, auto, auto) { return 0.5; });
    }
    sk::Model model{layers};
    sk::AdamW optimizer{model, {}};
    std::size_t held = 0;
    for (int step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model, 2};
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
            for (auto& layer : layers) {
                auto window = layer.unshard();
                auto handle = accumulation.gradients(layer);
                handle[Wide{}][0] = typename Precision::Gradient(static_cast<float>(window[Wide{}][0]));
                layer.reshard(std::move(window));
                accumulation.add(std::move(handle));
            }
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        optimizer.step(std::move(reduced), sk::clip(norm, 1));
        if (step > 0) { CHECK(steady::account.large_bytes - at_start == held); }
        held = steady::account.large_bytes - at_start;
    }
    return held;
}

template <class Precision, class Policy>
void check_held(std::size_t world, Policy policy, std::size_t expected) {
    CAPTURE(Policy::name);
    sk::threads::run(toy::Mesh(world, 1, 1),
                     [&](auto& rank) { CHECK(held_by<Precision>(rank, toy::chosen(policy)) == expected); });
}

}  // namespace

TEST_CASE("the ledger sees every form of allocation") {
    const auto count = [] { return steady::account.allocations; };
    const std::size_t start = count();
    const std::size_t bytes = steady::account.current;
    delete new int;
    delete[] new int[3];
    delete new (std::nothrow) int;
    struct alignas(256) Wide256 {
        std::byte bytes[256];
    };
    auto* const aligned = new Wide256;
    CHECK(reinterpret_cast<std::size_t>(aligned) % 256 == 0);
    CHECK(steady::account.current == bytes + 256);
    delete aligned;
    delete[] new Wide256[2];
    // A compiler may elide pairs of new and delete, never a call of the operator.
    ::operator delete(::operator new(5000));
    ::operator delete[](::operator new[](7, std::nothrow), std::nothrow);
    CHECK(count() >= start + 3);
    CHECK(steady::account.current == bytes);
    CHECK(steady::account.large_blocks * steady::Account::large <= steady::account.large_bytes);
}

TEST_CASE("a step allocates nothing once two steps are over") {
    using Over = sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>;
    SUBCASE("fp64") {
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::NoShard{});
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::ShardOptimizer{});
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::ShardGradOp{});
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::FullShard{});
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), sk::HybridShard<2>{});
        check_steady<sk::Precision<double>>(toy::Mesh(2, 1, 2), Over{});
        check_steady<sk::Precision<double>>(toy::Mesh(4, 1, 1), toy::KeepUntilUpdate{});
    }
    SUBCASE("bf16 with fp32 reduction and master") {
        check_steady<sk::Precision<sk::bf16>>(toy::Mesh(3, 1, 1), sk::NoShard{});
        check_steady<sk::Precision<sk::bf16>>(toy::Mesh(3, 1, 1), sk::ShardGradOp{});
        check_steady<sk::Precision<sk::bf16>>(toy::Mesh(3, 1, 1), sk::FullShard{});
    }
    SUBCASE("collectives beside the computation") {
        check_steady<sk::Precision<double>>(toy::Mesh(3, 1, 1), sk::NoShard{}, rank_checks::on_threads);
        check_steady<sk::Precision<sk::bf16>>(toy::Mesh(3, 1, 1), sk::ShardGradOp{}, rank_checks::on_threads);
        check_steady<sk::Precision<sk::bf16>>(toy::Mesh(2, 1, 2), sk::FullShard{}, rank_checks::on_threads);
    }
    SUBCASE("one rank in the caller's thread") {
        const auto check = [](auto policy) {
            SteadyCount count(1);
            sk::self::run(toy::Mesh(1, 1, 1), [&](auto& rank) {
                static_cast<void>(
                    toy::train_rank<sk::Precision<double>>(rank, policy, training(toy::Rule::adamw), count.hooks(5)));
            });
            CHECK(count.before[0] > 0);
            CHECK(count.after == count.before);
        };
        check(sk::NoShard{});
        check(sk::FullShard{});
    }
}

TEST_CASE("a norm and a step of many groups in few launches allocate nothing, also where groups are left out") {
    // Nothing is computed from the third step on: what is timed is the host's work for it.
    for (const std::size_t groups : {1U, 10U, 100U, 300U}) {
        counting::on_device([&](auto& rank) {
            using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
            std::vector<Layer> layers;
            for (std::size_t i = 0; i < groups; ++i) {
                layers.emplace_back(rank, "layers." + std::to_string(i), sk::TensorList<float>{{"w", {64}}});
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {}};
            const auto step = [&](std::size_t left_out) {
                sk::Accumulation accumulation{model};
                for (std::size_t i = 0; i < groups; ++i) {
                    i == left_out ? accumulation.skip(layers[i]) : accumulation.add_zero(layers[i]);
                }
                auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                const auto begin = std::chrono::steady_clock::now();
                const auto norm = sk::global_norm(reduced);
                optimizer.step(std::move(reduced), sk::clip(norm, 1));
                return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
            };
            step(groups);
            step(groups / 2);
            counting::launches.ranges.reserve(64);
            const std::size_t before = steady::account.allocations;
            counting::dry = true;
            double least = step(groups);
            for (int i = 0; i < 20; ++i) { least = std::min(least, step(groups)); }
            step(groups / 2);
            counting::dry = false;
            CHECK(steady::account.allocations == before);
            MESSAGE(groups << " groups: " << least << " us of the host");
        });
    }
}

/// The most bytes of buffers of at least 4 KiB that a rank holds in steps in backward of six equal groups, and what
/// the plan says of it.
template <class Precision, class Policy>
void check_released(std::size_t world, const Policy& policy, std::size_t in_flight) {
    CAPTURE(Policy::name);
    CAPTURE(in_flight);
    sk::threads::run(
        toy::Mesh(world, 1, 1),
        [&](auto& rank) {
            const std::size_t at_start = steady::account.large_buffer_bytes;
            using Layer = sk::Sharded<Group, sk::DynamicPolicy, Precision>;
            typename Layer::Options options{toy::chosen(policy)};
            options.gradient_release = sk::GradientRelease::at_update;
            std::vector<Layer> layers;
            for (int i = 0; i < 6; ++i) {
                layers.emplace_back(rank, "layers." + std::to_string(i), sk::Shapes<Group>{}, options);
                layers.back().initialize([](auto, auto, auto) { return 0.5; });
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {}};
            const sk::planner::PlanOptions planned{.in_flight = in_flight, .norms_per_step = 0};
            const std::size_t expected = sk::plan(model, planned).memory.total().value;
            std::array<std::size_t, 3> allocations{};
            std::size_t most = 0;
            for (std::size_t& after : allocations) {
                sk::Accumulation accumulation{model};
                optimizer.step_in_backward(accumulation);
                for (std::size_t l = layers.size(); l > 0; --l) {
                    auto& layer = layers[l - 1];
                    auto window = layer.unshard();
                    auto handle = accumulation.gradients(layer);
                    layer.reshard(std::move(window));
                    accumulation.add(std::move(handle));
                    most = std::max(most, steady::account.large_buffer_bytes - at_start);
                }
                optimizer.step(std::move(accumulation));
                after = steady::account.allocations;
            }
            CHECK(most == expected);
            CHECK(allocations[2] == allocations[1]);
        },
        sk::RankOptions{.in_flight = in_flight});
}

TEST_CASE("steps in backward hold what the plan says to the byte, and allocate nothing") {
    for (const std::size_t in_flight : {1U, 2U}) {
        const auto check = [&](const auto& policy, std::size_t world = 2) {
            check_released<sk::Precision<float>>(world, policy, in_flight);
            check_released<sk::Precision<sk::bf16, float, sk::bf16, float>>(world, policy, in_flight);
        };
        check(sk::NoShard{});
        check(sk::ShardOptimizer{});
        check(sk::ShardGradOp{});
        check(sk::FullShard{});
        check(sk::HybridShard<2>{}, 4);
    }
}

TEST_CASE("NoShard on one rank holds parameters, gradients and optimizer states, and no other buffer") {
    constexpr std::size_t elements = 96 * 64 + 96;  // a multiple of the alignment: no padding
    sk::self::run(toy::Mesh(1, 1, 1), [](auto& rank) {
        const std::size_t blocks = steady::account.large_blocks;
        const std::size_t bytes = steady::account.large_bytes;
        using Layer = sk::Sharded<Group, sk::NoShard, sk::Precision<double>>;
        Layer layer(rank, "layer");
        CHECK(steady::account.large_blocks - blocks == 2);
        CHECK(steady::account.large_bytes - bytes == 2 * elements * sizeof(double));
        sk::Model model{layer};
        sk::AdamW optimizer{model, {}};
        CHECK(steady::account.large_blocks - blocks == 4);
        CHECK(steady::account.large_bytes - bytes == 4 * elements * sizeof(double));
        const std::size_t held = steady::account.current;
        steady::account.peak = held;
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            auto window = layer.unshard();
            auto handle = accumulation.gradients(layer);
            handle[Narrow{}][0] = 1;
            layer.reshard(std::move(window));
            accumulation.add(std::move(handle));
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            const auto norm = sk::global_norm(reduced);
            optimizer.step(std::move(reduced), sk::clip(norm, 1));
        }
        // The scratch of the norm, once, its totals and the table of where one group's gradients lie: room for
        // nothing else.
        CHECK(steady::account.peak - held <= (71 + 2 * sk::detail::norm_slots) * sizeof(double) + 1024);
    });
    sk::self::run(toy::Mesh(1, 1, 1), [](auto& rank) {
        CHECK(held_by<sk::Precision<float>>(rank, toy::chosen(sk::NoShard{})) == 6 * 4 * elements * sizeof(float));
    });
}

TEST_CASE("what a rank holds is the closed form of its policy: six groups, four ranks, two slots") {
    // 6240 elements, in fp64 cut into four shards of 1568 (98 times 16), in bf16 of 1600 (25 times 64).
    constexpr std::size_t shard = 1568 * 8;
    constexpr std::size_t full = 4 * shard;
    using Double = sk::Precision<double>;
    // Parameters, gradients, two states; gather and gradient slots.
    check_held<Double>(4, sk::NoShard{}, 6 * (full + full + 2 * full));
    check_held<Double>(4, sk::ShardOptimizer{}, 6 * (full + full + 2 * shard));
    check_held<Double>(4, sk::ShardGradOp{}, 6 * (full + shard + 2 * shard) + 2 * full);
    check_held<Double>(4, sk::FullShard{}, 6 * (shard + shard + 2 * shard) + 2 * full + 2 * full);
    check_held<Double>(4, toy::KeepUntilUpdate{}, 6 * (full + shard + shard + 2 * shard) + 2 * full);
    constexpr std::size_t numel = 4 * 1600;
    using Mixed = sk::Precision<sk::bf16>;
    // bf16 parameters and gradients; fp32 master, sums and two states; with microbatches the next addend's slots.
    check_held<Mixed>(4, sk::NoShard{}, 6 * numel * (2 + 2 + 4 + 4 + 2 * 4));
    check_held<Mixed>(4, sk::ShardOptimizer{}, 6 * (numel * (2 + 2) + 1600 * (4 + 4 + 2 * 4)));
    check_held<Mixed>(4, sk::ShardGradOp{}, 6 * (numel * 2 + 1600 * (4 + 4 + 2 * 4)) + 2 * numel * 2 + 2 * 1600 * 4);
    // The resting shard of 3200 bytes is below the ledger's 4 KiB and counts as nothing here.
    check_held<Mixed>(4, sk::FullShard{}, 6 * 1600 * (4 + 4 + 2 * 4) + 2 * numel * 2 + 2 * numel * 2 + 2 * 1600 * 4);
}

namespace {

struct Rows : sk::Param<"rows", float, sk::dynamic, 64> {};

/// Rows of each group of three models: equal layers; a table, blocks and a head; one group.
const std::array<std::vector<std::size_t>, 3> models{{{98, 98, 98, 98}, {400, 160, 160, 160, 96}, {128}}};

/// A model and two microbatches, with `improve` of the recorded step: what is held is `peak` to the byte, and a step
/// allocates nothing.
template <class Precision, class Policy, class F>
void check_scheduled(std::size_t world, Policy policy, const std::vector<std::size_t>& rows, const F& improve,
                     const sk::threads::LaunchOptions& launch = {}) {
    CAPTURE(Policy::name);
    CAPTURE(rows.size());
    CAPTURE(static_cast<int>(launch.overlap));
    std::array<rank_checks::Flag, 4> points;
    const auto meet = [&](std::size_t point) {
        points[point].set();
        points[point].await(static_cast<int>(world));
    };
    sk::threads::run(
        toy::Mesh(world, 1, 1),
        [&](auto& rank) {
            const std::size_t at_start = steady::account.large_buffer_bytes;
            using Layer = sk::Sharded<sk::Params<Rows>, sk::DynamicPolicy, Precision>;
            std::vector<Layer> layers;
            for (const std::size_t each : rows) {
                layers.emplace_back(rank, "layers." + std::to_string(layers.size()),
                                    sk::Shapes<sk::Params<Rows>>{sk::shape<Rows>(each, std::size_t{64})},
                                    typename Layer::Options{sk::DynamicPolicy(policy), {}, {}});
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {}};
            const auto step = [&] {
                sk::Accumulation accumulation{model, 2};
                for (int microbatch = 0; microbatch < 2; ++microbatch) {
                    for (auto& layer : layers) { const auto window = layer.unshard(); }
                    for (std::size_t l = layers.size(); l-- > 0;) {
                        auto window = layers[l].unshard();
                        auto handle = accumulation.gradients(layers[l]);
                        handle[Rows{}][0] = typename Precision::Gradient(1);
                        layers[l].reshard(std::move(window));
                        accumulation.add(std::move(handle));
                    }
                }
                auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                const auto norm = sk::global_norm(reduced);
                optimizer.step(std::move(reduced), sk::clip(norm, 1));
            };
            const std::vector<sk::planner::GroupDescription> groups = sk::describe_groups(model);
            const sk::Schedule schedule = improve(sk::schedule::record(model, step), groups);
            auto following = sk::schedule::follow(model, schedule);
            // The norm's doubles and the tables of launches are below the ledger's 4 KiB.
            const std::size_t norm = (71 + 2 * sk::detail::norm_slots) * sizeof(double);
            const std::size_t expected = sk::schedule::peak(schedule, groups).value - norm;
            step();
            CHECK(steady::account.large_buffer_bytes - at_start == expected);
            const std::size_t allocations = steady::account.allocations;
            steady::account.peak = steady::account.current;
            const std::size_t current = steady::account.current;
            step();
            CHECK(steady::account.allocations == allocations);
            CHECK(steady::account.peak == current);
            CHECK(steady::account.large_buffer_bytes - at_start == expected);
            // Nor do threads that communicate for the ranks.
            rank.synchronize();
            meet(0);
            const std::size_t of_all = steady::allocations_of_all;
            meet(1);
            step();
            rank.synchronize();
            meet(2);
            const std::size_t of_all_then = steady::allocations_of_all;
            meet(3);
            CHECK(of_all_then == of_all);
            following.measure();
            const std::size_t measuring = steady::account.allocations;
            step();
            CHECK(steady::account.allocations == measuring);
            CHECK(following.measured().compute > 0);
        },
        {}, launch);
}

}  // namespace

TEST_CASE(
    "a scheduled step holds the schedule's peak to the byte, of five policies and three models, and allocates "
    "nothing") {
    const auto plain = [](const sk::Schedule& s, const auto&) { return s; };
    const auto better = [](const sk::Schedule& s, const auto& groups) {
        const sk::Schedule kept =
            sk::schedule::keep_gathered(sk::schedule::reduce_last(s, groups), groups, sk::ByteCount(1U << 20U));
        return sk::schedule::gather_after_update(sk::schedule::prefetch(kept, groups, 2), groups);
    };
    using Mixed = sk::Precision<sk::bf16, sk::bf16, float, double>;
    for (const std::vector<std::size_t>& rows : models) {
        const auto check = [&](auto policy) {
            check_scheduled<sk::Precision<double>>(4, policy, rows, plain);
            check_scheduled<Mixed>(2, policy, rows, better);
            check_scheduled<Mixed>(2, policy, rows, plain);
        };
        check(sk::NoShard{});
        check(sk::ShardOptimizer{});
        check(sk::ShardGradOp{});
        check(sk::FullShard{});
        check(sk::HybridShard<2>{});
        check_scheduled<sk::Precision<double>>(3, sk::FullShard{}, rows, better);
        check_scheduled<sk::Precision<double>>(4, sk::HybridShard<2>{}, rows, better);
    }
}

TEST_CASE("a scheduled step whose collectives run beside the computation allocates nothing, on any thread") {
    const auto overlapped = [](const sk::Schedule& s, const auto& groups) {
        return sk::schedule::gather_after_update(
            sk::schedule::overlap_reductions(sk::schedule::prefetch(s, groups, 1), groups), groups);
    };
    using Mixed = sk::Precision<sk::bf16, sk::bf16, float, double>;
    const sk::threads::LaunchOptions& launch = rank_checks::on_threads;
    for (const std::vector<std::size_t>& rows : models) {
        check_scheduled<Mixed>(2, sk::NoShard{}, rows, overlapped, launch);
        check_scheduled<Mixed>(3, sk::ShardOptimizer{}, rows, overlapped, launch);
        check_scheduled<sk::Precision<double>>(2, sk::ShardGradOp{}, rows, overlapped, launch);
        check_scheduled<Mixed>(3, sk::FullShard{}, rows, overlapped, launch);
        check_scheduled<sk::Precision<double>>(4, sk::HybridShard<2>{}, rows, overlapped, launch);
    }
}

}  // namespace allocation_test
