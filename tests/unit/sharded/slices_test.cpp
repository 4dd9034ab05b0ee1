// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/check.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/step/slices.hpp>

#include "test_size.hpp"
#include "unit/plan/planned_and_logged.hpp"
#include "unit/sharded/custom_policies.hpp"

namespace sk = shardkit;

namespace slices_test {

namespace {

struct Odd : sk::Param<"odd", float, 777> {};
struct Long : sk::Param<"long", float, 3001> {};
using Group = sk::Params<Odd, Long>;
using Plain = sk::Precision<float>;
/// Gradients of 16 bits, whose sums are fp32.
using Half = sk::Precision<float, sk::bf16, float, float>;

constexpr std::size_t steps = 3;

/// The gradient of a slice, over many magnitudes: in another order sums have other bits.
float given(std::size_t slice, std::size_t step, std::size_t p, std::size_t i) {
    std::uint64_t x = ((slice * steps + step) * 2 + p) * 4096 + i + 1;
    for (int round = 0; round < 3; ++round) { x = (x ^ x >> 29U) * 0xbf58476d1ce4e5b9ULL; }
    return (static_cast<float>(x >> 40U) / 16777216.0F - 0.5F) * static_cast<float>(1U << (x & 15U));
}
/// The sum of `count` slices from `first` on, as the gradient's type holds each: of each half, and then of both.
template <class Gradient>
float halves(std::size_t first, std::size_t count, std::size_t step, std::size_t p, std::size_t i) {
    if (count == 1) { return static_cast<float>(static_cast<Gradient>(given(first, step, p, i))); }
    return halves<Gradient>(first, count / 2, step, p, i) +
           halves<Gradient>(first + count / 2, count / 2, step, p, i);
}

struct Trained {
    std::vector<double> norms;
    std::vector<float> values;
    bool operator==(const Trained&) const = default;
};

template <class Layer>
void read(Layer& layer, Trained& trained) {
    const auto window = layer.unshard();
    for (std::size_t p = 0; p < 2; ++p) {
        const auto view = window.view(p);
        trained.values.insert(trained.values.end(), view.data(), view.data() + view.size());
    }
}

/// What one rank has that is given the sum of all slices.
template <class Gradient>
Trained expected_of(std::size_t slices) {
    Trained trained;
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Group, sk::NoShard, Plain> layer(rank, "layer");
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.125}};
        for (std::size_t step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < 2; ++p) {
                const auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] = halves<Gradient>(0, slices, step, p, i);
                }
            }
            accumulation.add(std::move(gradients));
            trained.norms.push_back(optimizer
                                        .step(std::move(accumulation),
                                              {.divisor = sk::divide_by(static_cast<double>(slices)), .max_norm = 1})
                                        .value());
        }
        read(layer, trained);
    });
    return trained;
}

/// Adds the gradient of a slice to what a handle shows.
template <class Gradients>
void add_slice(Gradients& gradients, std::size_t slice, std::size_t step) {
    for (std::size_t p = 0; p < 2; ++p) {
        const auto view = gradients.view(p);
        using Gradient = std::remove_cvref_t<decltype(view.data()[0])>;
        for (std::size_t i = 0; i < view.size(); ++i) {
            view.data()[i] = static_cast<Gradient>(static_cast<float>(view.data()[i]) + given(slice, step, p, i));
        }
    }
}
/// One step of the slices that this rank takes, with gradients that are added to what the handle shows.
template <class Layer, class Model, class Optimizer>
double train_step(Layer& layer, Model& model, Optimizer& optimizer, std::size_t step) {
    const sk::SliceOrder order = sk::slice_order(model);
    sk::Accumulation accumulation{model, order.microbatches()};
    for (std::size_t m = 0; m < order.microbatches(); ++m) {
        auto window = layer.unshard();
        auto gradients = accumulation.gradients(layer);
        add_slice(gradients, sk::slice_of(model, m), step);
        layer.reshard(std::move(window));
        accumulation.add(std::move(gradients));
    }
    return optimizer.step(std::move(accumulation), {.max_norm = 1}).value();
}

enum class Led : bool { no, yes };
template <class Precision>
Trained train(std::size_t ranks, const sk::DynamicPolicy& policy, Led led = Led::no) {
    Trained trained;
    sk::threads::run(sk::DeviceMesh{ranks, 1, 1}, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy, Precision>;
        Layer layer(rank, "layer", {}, typename Layer::Options{policy});
        sk::Model model{layer};
        std::optional<sk::schedule::Following> following;
        if (led == Led::yes) {
            const auto groups = sk::describe_groups(model);
            const sk::Schedule step =
                sk::schedule::layered_step(groups, {.microbatches = sk::slice_order(model).microbatches()});
            following.emplace(sk::schedule::follow(model, sk::schedule::prefetch(step, groups, 1)));
        }
        sk::AdamW optimizer{model, {.learning_rate = 0.125}};
        for (std::size_t step = 0; step < steps; ++step) {
            const double norm = train_step(layer, model, optimizer, step);
            if (rank.rank() == 0) { trained.norms.push_back(norm); }
        }
        following.reset();
        Trained mine;
        read(layer, mine);
        if (rank.rank() == 0) { trained.values = mine.values; }
    });
    return trained;
}

/// f(policy) for each policy, with that many slices, on `ranks` ranks.
template <class F>
void for_each_policy(std::size_t slices, std::size_t ranks, const F& f) {
    const sk::Slices cut{slices};
    f(sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::ShardOptimizer>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::ShardGradOp>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut}));
    if (ranks > 2) {
        f(sk::DynamicPolicy(sk::TreeSums<sk::HybridShard<2>>{cut}));
        f(sk::DynamicPolicy(sk::TreeSums<sk::HybridOptimizer<2>>{cut}));
        f(sk::DynamicPolicy(sk::TreeSums<sk::SecondaryShard<2>>{cut}));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("slices: one sum, norm and update on 1, 2, 4 and 8 ranks under every policy", P, Plain, Half) {
    using Gradient = typename P::Gradient;
    const std::size_t slices = 8;
    const Trained expected = expected_of<Gradient>(slices);
    CHECK(expected.norms[0] > 1);
    for (const std::size_t ranks : {1U, 2U, 4U, 8U}) {
        for_each_policy(slices, ranks, [&](const sk::DynamicPolicy& policy) {
            CAPTURE(ranks);
            CAPTURE(policy.name());
            CHECK(train<P>(ranks, policy) == expected);
            if (ranks < 4) { CHECK(train<P>(ranks, policy, Led::yes) == expected); }
        });
    }
    // More levels of the stack than ranks can have.
    const Trained of_64 = expected_of<Gradient>(64);
    CHECK(train<P>(2, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{sk::Slices{64}})) == of_64);
    CHECK(train<P>(2, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{sk::Slices{64}})) == of_64);
}

TEST_CASE_TEMPLATE("slices: one sum, norm and update under every legal pair of rows", P, Plain, Half) {
    const Trained expected = expected_of<typename P::Gradient>(16);
    sk::rules::PolicyValues sums;
    sums.summation = sk::Summation::tree;
    sums.slices = 16;
    std::size_t row = std::is_same_v<P, Plain> ? 0 : 1;  // in slow builds each is of one of the precisions
    for (const std::size_t within : {1U, 2U, 4U}) {
        toy::for_each_legal_row(
            within,
            [&](const sk::rules::PolicyValues& values) {
                if (test_size::reduced() && row++ % 2 != 0) { return; }
                CAPTURE(toy::words(values));
                CHECK(train<P>(4, sk::DynamicPolicy(values)) == expected);
                if (within == 2 && values.keep != sk::Keep::none) {
                    CHECK(train<P>(4, sk::DynamicPolicy(values), Led::yes) == expected);
                }
            },
            sums);
    }
}

TEST_CASE("slices: gradients that are released at the update, or lie in the user's memory, have the same sums") {
    const Trained expected = expected_of<float>(8);
    // Gradients that are released have no norm to clip by.
    const auto unclipped = [](std::size_t ranks, const sk::DynamicPolicy& policy, sk::GradientRelease release) {
        std::vector<float> values;
        sk::threads::run(sk::DeviceMesh{ranks, 1, 1}, [&](auto& rank) {
            using Layer = sk::Sharded<Group, sk::DynamicPolicy, Plain>;
            typename Layer::Options options{policy};
            options.gradient_release = release;
            Layer layer(rank, "layer", {}, options);
            sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.125}};
            for (std::size_t step = 0; step < steps; ++step) {
                sk::Accumulation accumulation{model, sk::until_reduced};
                if (release == sk::GradientRelease::at_update) {
                    optimizer.step_in_backward(accumulation, {.divisor = sk::divide_by(8)});
                }
                for (std::size_t m = 0; m < sk::slice_order(model).microbatches(); ++m) {
                    auto gradients = accumulation.gradients(layer);
                    add_slice(gradients, sk::slice_of(model, m), step);
                    accumulation.add(std::move(gradients));
                }
                optimizer.step(std::move(accumulation), {.divisor = sk::divide_by(8)});
            }
            Trained mine;
            read(layer, mine);
            if (rank.rank() == 0) { values = mine.values; }
        });
        return values;
    };
    const auto kept =
        unclipped(1, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{sk::Slices{8}}), sk::GradientRelease::never);
    for_each_policy(8, 4, [&](const sk::DynamicPolicy& policy) {
        CAPTURE(policy.name());
        CHECK(unclipped(4, policy, sk::GradientRelease::at_update) == kept);
    });
    CHECK(unclipped(2, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{sk::Slices{8}}), sk::GradientRelease::never) ==
          kept);

    // Memory of the user's, in which the reduced gradients are found.
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        using Policy = sk::TreeSums<sk::NoShard>;
        using Layer = sk::Sharded<Group, Policy, Plain>;
        constexpr std::size_t numel = 777 + 3001;
        std::vector<float> parameters(numel);
        std::vector<float> gradients(numel);
        typename Layer::Options options{Policy{sk::Slices{8}}};
        options.packing = sk::Packing::exact;
        Layer layer = Layer::adopt(rank, "layer", {}, {parameters, gradients}, options);
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.125}};
        Trained mine;
        for (std::size_t step = 0; step < steps; ++step) {
            mine.norms.push_back(train_step(layer, model, optimizer, step));
        }
        mine.values = parameters;
        CHECK(mine == expected);
        CHECK(gradients[0] == halves<float>(0, 8, steps - 1, 0, 0));
    });
}

TEST_CASE("slices: the plan has their sums, and each step the traffic that it says") {
    const auto described = [](auto policy, auto precision, std::size_t ranks) {
        return sk::describe_group<Group, decltype(policy), decltype(precision)>(
            "layer", {}, sk::DeviceMesh{ranks, 1, 1}.grid(), policy);
    };
    const auto more = [&](auto policy, auto precision, std::size_t ranks, std::size_t slices) {
        using Policy = decltype(policy);
        const std::array sliced{described(sk::TreeSums<Policy>{sk::Slices{slices}}, precision, ranks)};
        const std::array usual{described(sk::TreeSums<Policy>{}, precision, ranks)};
        const sk::planner::PlanOptions options{.microbatches = slices / ranks};
        CHECK(sk::planner::plan_traffic(sliced, sk::DeviceMesh{ranks, 1, 1}.grid()).total(sk::Verb::all_gather) ==
              sk::planner::plan_traffic(usual, sk::DeviceMesh{ranks, 1, 1}.grid(), options)
                  .total(sk::Verb::all_gather));
        return sk::planner::plan_memory(sliced).total().value -
               sk::planner::plan_memory(usual, options).total().value;
    };
    const std::size_t full = described(sk::NoShard{}, Plain{}, 2).buffer_numel * sizeof(float);
    const std::size_t shard = described(sk::FullShard{}, Plain{}, 2).shard_numel * sizeof(float);
    CHECK(more(sk::NoShard{}, Plain{}, 2, 2) == 0);
    CHECK(more(sk::NoShard{}, Plain{}, 2, 4) == full);
    CHECK(more(sk::NoShard{}, Plain{}, 2, 64) == 5 * full);
    CHECK(more(sk::ShardOptimizer{}, Half{}, 2, 64) == 5 * full);
    CHECK(more(sk::FullShard{}, Plain{}, 2, 4) == 0);
    CHECK(more(sk::FullShard{}, Plain{}, 2, 64) == 4 * shard);
    CHECK(more(sk::ShardGradOp{}, Half{}, 2, 64) == 4 * shard);
    // In a constant expression too.
    constexpr std::array constant{sk::describe_group<Group, sk::TreeSums<sk::NoShard>, Plain>(
        "layer", {}, sk::DeviceMesh<2>{}.grid(), sk::TreeSums<sk::NoShard>{sk::Slices{8}})};
    static_assert(sk::planner::plan_memory(constant).gradients.value == 3 * constant[0].buffer_numel * sizeof(float));
    static_assert(sk::slice_sums(4) == 3);

    const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic> mesh(4, 1, 1);
    for_each_policy(16, 4, [&](const sk::DynamicPolicy& policy) {
        CAPTURE(policy.name());
        CHECK(toy::difference(toy::planned_and_logged<Plain>(mesh, {policy}, 4), 4).empty());
        CHECK(toy::difference(toy::planned_and_logged<Half>(mesh, {policy}, 4), 4).empty());
    });
}

TEST_CASE("slices: a step that has lost one is given no more of them than there are") {
    sk::threads::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        using Policy = sk::TreeSums<sk::NoShard>;
        using Layer = sk::Sharded<Group, Policy, Plain>;
        Layer layer(rank, "layer", {}, typename Layer::Options{Policy{sk::Slices{2}}});
        sk::Model model{layer};
        sk::Accumulation accumulation{model, sk::until_reduced};
        { const auto lost = accumulation.gradients(layer); }
        accumulation.add_zero(layer);
        CHECK_THROWS_WITH_AS(accumulation.add_zero(layer),
                             doctest::Contains("'layer': a gradient handle was dropped without being added"),
                             sk::UsageError);
        CHECK_THROWS_WITH_AS(static_cast<void>(accumulation.gradients(layer)),
                             doctest::Contains("'layer': gradients() after 2 of 2 slices were added"),
                             sk::UsageError);
    });
}

TEST_CASE("slices: a schedule that reduces two of them together, or not all, is refused") {
    const std::array groups{sk::describe_group<Group, sk::TreeSums<sk::FullShard>, Plain>(
        "layer", {}, sk::DeviceMesh<2>{}.grid(), sk::TreeSums<sk::FullShard>{sk::Slices{4}})};
    const sk::Schedule step = sk::schedule::layered_step(groups, {.microbatches = 2});
    CHECK(sk::schedule::check(step, groups).empty());
    const auto broken = [&](const sk::Schedule& schedule) {
        for (const sk::schedule::Violation& each : sk::schedule::check(schedule, groups)) {
            if (each.rule == sk::schedule::StepRule::slices_one_by_one) { return true; }
        }
        return false;
    };
    CHECK(broken(sk::schedule::layered_step(groups, {.microbatches = 1})));
    CHECK(broken(sk::schedule::layered_step(groups, {.microbatches = 4})));
    sk::Schedule together;
    for (const sk::schedule::Op& op : step.ops()) {
        if (op.act != sk::schedule::Act::reduce || op.microbatch == 1) { together.add(op); }
    }
    CHECK(broken(together));
}

namespace {

/// What a group's construction, or a step of `microbatches`, says on `ranks` ranks.
template <class P = Plain>
void begin(const sk::DynamicPolicy& policy, std::size_t ranks, std::size_t cp, std::size_t microbatches,
           std::size_t cut_of_rank_1 = 0) {
    sk::threads::run(sk::DeviceMesh{ranks, 1, cp}, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy, P>;
        const bool other = rank.rank() == 1 && cut_of_rank_1 > 0;
        Layer layer(rank, "layer", {},
                    typename Layer::Options{
                        other ? sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{sk::Slices{cut_of_rank_1}}) : policy});
        sk::Model model{layer};
        const sk::Accumulation accumulation{model, microbatches};
    });
}
/// Sums of 16 bits, which are rounded wherever they are cut.
using Rounded = sk::Precision<sk::bf16, sk::bf16, sk::bf16, float>;

}  // namespace

TEST_CASE("slices: what cannot add along one tree is refused, with the reason") {
    using std::invalid_argument;
    const auto cut = [](std::size_t slices) {
        return sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{sk::Slices{slices}});
    };
    CHECK_THROWS_WITH_AS(begin(cut(2), 4, 1, 1),
                         doctest::Contains("'layer': policy 'full_shard' with 2 slices on 4 data-parallel ranks, "
                                           "expected a power of two that divides them"),
                         invalid_argument);
    CHECK_THROWS_WITH_AS(begin(cut(8), 3, 1, 1), doctest::Contains("3 ranks of dp, expected a power of two"),
                         invalid_argument);
    CHECK_THROWS_WITH_AS(
        begin(cut(8), 2, 2, 4),
        doctest::Contains("with 8 slices and cp = 2, expected 1: ranks of cp add parts of one slice"),
        invalid_argument);
    CHECK_THROWS_WITH_AS(begin<Rounded>(cut(8), 2, 1, 4),
                         doctest::Contains("8 slices and a reduction type of 2 bytes, expected fp32 or fp64"),
                         invalid_argument);
    CHECK_THROWS_WITH_AS(begin(cut(8), 2, 1, 3),
                         doctest::Contains("'layer': 3 microbatches given, expected 4: 8 slices over 2 data-parallel "
                                           "ranks"),
                         invalid_argument);
    CHECK_THROWS_WITH_AS(
        begin(cut(8), 2, 1, 4, 16),
        doctest::Contains("rank 0 makes it with sums along a tree of 8 slices, rank 1 with sums along a tree of "
                          "16 slices"),
        invalid_argument);
    CHECK_NOTHROW(begin(cut(8), 2, 1, 4));
}

TEST_CASE("slices: groups of a model that take them in different orders are refused") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        using Whole = sk::TreeSums<sk::NoShard>;
        using Cut = sk::TreeSums<sk::FullShard>;
        const auto make = [&](const char* path, auto policy) {
            using Layer = sk::Sharded<Group, decltype(policy), Plain>;
            return Layer(rank, path, {}, typename Layer::Options{policy});
        };
        auto whole = make("whole", Whole{sk::Slices{8}});
        auto cut = make("cut", Cut{sk::Slices{8}});
        auto uncut = make("uncut", Cut{});
        sk::Model model{cut, whole};
        const auto expected = doctest::Contains(
            "'cut' has 8 slices, 2 rank(s) summed in each microbatch, 'whole' has 8 slices, 1 rank(s) summed in each "
            "microbatch; expected policies that take slices in one order for all groups");
        CHECK_THROWS_WITH_AS(static_cast<void>(sk::Accumulation(model, 4)), expected, std::invalid_argument);
        CHECK_THROWS_WITH_AS(sk::slice_of(model, 0), expected, std::invalid_argument);
        sk::Model mixed{cut, uncut};
        CHECK_THROWS_WITH_AS(static_cast<void>(sk::Accumulation(mixed, 4)), doctest::Contains("'uncut' has 0 slices"),
                             std::invalid_argument);
        sk::Model alone{uncut};
        CHECK_THROWS_WITH_AS(sk::slice_order(alone), doctest::Contains("slice_order of a model without slices"),
                             sk::UsageError);
        sk::Model one{cut};
        CHECK(sk::slice_of(one, 3) == 3 * 2 + rank.rank());
        CHECK_THROWS_WITH_AS(sk::slice_of(one, 4),
                             doctest::Contains("slice_of: microbatch 4 given, expected one below 4"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(sk::slice_of(one, -1), doctest::Contains("microbatch -1 given"), std::invalid_argument);
        // One layer more often than the others would be a sum of other slices.
        sk::Accumulation accumulation{one, 4};
        CHECK_THROWS_WITH_AS(accumulation.set_microbatches(cut, 8),
                             doctest::Contains("8 microbatches given, expected 4"), std::invalid_argument);
    });
}

}  // namespace slices_test
