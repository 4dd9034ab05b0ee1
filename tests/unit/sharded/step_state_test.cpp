// SPDX-License-Identifier: Apache-2.0
#include <shardkit/sharded/step_state.hpp>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace step_state_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

template <class Layer>
std::vector<double> biases(Layer& layer) {
    std::vector<double> values(7);
    layer.read_full(Bias{}, std::span(values));
    return values;
}

/// Biases after n ranks added gradient factor * (i + 1) and SGD stepped with learning rate 1 on their mean.
std::vector<double> stepped(double factor) {
    std::vector<double> values;
    for (int i = 0; i < 7; ++i) { values.push_back(100 + i - factor * (i + 1)); }
    return values;
}

/// Two layers of each policy on two ranks: body(rank, a, b, model, optimizer).
template <class Body>
void on_two_layers(const sk::DynamicPolicy& policy, Body body) {
    CAPTURE(policy.name());
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto a = toy::linear_layer(rank, "a", policy);
        auto b = toy::linear_layer(rank, "b", policy);
        sk::Model model{a, b};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        body(rank, a, b, model, optimizer);
        // Whatever went wrong before: a fresh step works.
        number(a);
        number(b);
        sk::Accumulation accumulation{model};
        accumulation.set_microbatches(a, 2);
        toy::add(accumulation, a, 1);
        toy::add(accumulation, a, 2);
        toy::add(accumulation, b, 4);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        CHECK(biases(a) == stepped(3));
        CHECK(biases(b) == stepped(4));
    });
}
const sk::DynamicPolicy each_policy[] = {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                         sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{})};
template <class Body>
void with_each_policy(Body body) {
    for (const auto& policy : each_policy) { on_two_layers(policy, body); }
}

}  // namespace

TEST_CASE("a gradient handle is added once") {
    with_each_policy([](auto&, auto& a, auto&, auto& model, auto&) {
        sk::Accumulation accumulation{model};
        const sk::SourceLocation taken{__FILE__, __LINE__ + 1};
        auto handle = accumulation.gradients(a);
        accumulation.add(std::move(handle));
        CHECK_USAGE_ERROR(accumulation.add(std::move(handle)),
                          "Accumulation::add: this gradient handle was already added");
        CHECK_USAGE_ERROR_FROM(taken, handle[Bias{}], "gradient handle used after it was added; it was taken here");
    });
}

TEST_CASE("one handle of a group at a time") {
    with_each_policy([](auto&, auto& a, auto& b, auto& model, auto&) {
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(a);
        CHECK_USAGE_ERROR(accumulation.gradients(a),
                          "'a': gradients() again before the last handle was added; keep one handle");
        auto other = accumulation.gradients(b);  // another group is free
        accumulation.add(std::move(handle));
        accumulation.add(std::move(other));
    });
}

TEST_CASE("no gradients after the last microbatch, after skip, or outside of a step") {
    with_each_policy([](auto&, auto& a, auto& b, auto& model, auto&) {
        const std::string one =
            ": 1 microbatch(es) of this accumulation were added; say how many there are, as "
            "Accumulation{model, microbatches}";
        sk::Accumulation accumulation{model};
        toy::add(accumulation, a, 1);
        CHECK_USAGE_ERROR(accumulation.gradients(a), "'a': gradients() after the last microbatch was reduced" + one);
        CHECK_USAGE_ERROR(accumulation.add_zero(a), "'a': add_zero() after the last microbatch was reduced" + one);
        CHECK_USAGE_ERROR(accumulation.skip(a), "'a': skip() after the last microbatch was reduced");
        accumulation.skip(b);
        CHECK_USAGE_ERROR(accumulation.gradients(b), "'b': gradients() after the group was skipped");
        const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        CHECK_USAGE_ERROR(accumulation.gradients(a),
                          "'a': gradients() outside of an accumulation: this group is in "
                          "another accumulation, which has not ended");
        CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                          "reduce: this accumulation was already reduced");
    });
}

TEST_CASE("gradients of a group that is in no step are refused") {
    with_each_policy([](auto&, auto& a, auto& b, auto&, auto&) {
        sk::Model only_a{a};
        sk::Accumulation accumulation{only_a};
        // b has a's type, so the compiler lets it pass.
        CHECK_USAGE_ERROR(accumulation.gradients(b),
                          "'b': gradients() outside of an accumulation: it is not one of this "
                          "accumulation's groups");
    });
}

TEST_CASE("skip after gradients were handed out is refused") {
    with_each_policy([](auto&, auto& a, auto& b, auto& model, auto&) {
        sk::Accumulation accumulation{model, 2};
        auto handle = accumulation.gradients(a);
        const char* const message = "'a': skip() after gradients were handed out in this step";
        CHECK_USAGE_ERROR(accumulation.skip(a), message);
        accumulation.add(std::move(handle));
        CHECK_USAGE_ERROR(accumulation.skip(a), message);
        { const auto dropped = accumulation.gradients(b); }
        CHECK_USAGE_ERROR(accumulation.skip(b), "'b': skip() after gradients were handed out in this step");
    });
}

TEST_CASE("reduce refuses a group without gradients, with a handle out, or with one lost") {
    SUBCASE("without gradients") {
        with_each_policy([](auto&, auto& a, auto&, auto& model, auto&) {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, a, 1);
            CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                              "'b': reduce() before any gradient was added; call add, add_zero or skip");
        });
    }
    SUBCASE("a handle is out") {
        with_each_policy([](auto&, auto& a, auto&, auto& model, auto&) {
            sk::Accumulation accumulation{model};
            const auto handle = accumulation.gradients(a);
            CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                              "'a': reduce() while a gradient handle is still out; add it");
        });
    }
    SUBCASE("a handle was lost, even when another one was added after it") {
        with_each_policy([](auto&, auto& a, auto&, auto& model, auto&) {
            sk::Accumulation accumulation{model, sk::until_reduced};
            {
                const auto lost = accumulation.gradients(a);
                toy::fill(lost, 1000);
            }
            toy::add(accumulation, a, 1);
            CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                              "'a': a gradient handle was dropped without being added");
        });
    }
    SUBCASE("assigning a handle loses the one that was held") {
        with_each_policy([](auto&, auto& a, auto& b, auto& model, auto&) {
            sk::Accumulation accumulation{model, sk::until_reduced};
            auto held = accumulation.gradients(a);
            auto other = accumulation.gradients(b);
            held = std::move(other);
            toy::add(accumulation, a, 1);
            accumulation.add(std::move(held));
            CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                              "'a': a gradient handle was dropped without being added");
        });
    }
}

TEST_CASE("a second step over a group that is in one is refused and disturbs nothing") {
    with_each_policy([](auto&, auto& a, auto& b, auto& model, auto& optimizer) {
        sk::Model only_b{b};
        sk::Accumulation running{only_b};
        // a comes first and is free: it has to be free again after the refusal.
        CHECK_USAGE_ERROR(sk::Accumulation{model},
                          "'b': a second accumulation was started before the first one ended");
        CHECK_USAGE_ERROR(sk::assume_reduced(model),
                          "'b': a second accumulation was started before the first one ended");
        sk::Model only_a{a};
        sk::Accumulation beside{only_a};
        toy::add(beside, a, 1);
        toy::add(running, b, 2);
        const auto reduced_a = sk::reduce(std::move(beside), sk::mean);
        auto reduced_b = sk::reduce(std::move(running), sk::mean);
        std::vector<double> bias(7);
        reduced_b.read_full(b, Bias{}, std::span(bias));
        CHECK(bias == std::vector<double>{2, 4, 6, 8, 10, 12, 14});
        // Reduced gradients keep the step open until they are consumed or dropped.
        CHECK_USAGE_ERROR(sk::Accumulation{model},
                          "'a': a second accumulation was started before the first one ended");
        static_cast<void>(optimizer);
    });
}

TEST_CASE("the same group twice in a model is refused") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto a = toy::linear_layer<sk::NoShard>(rank, "a");
        sk::Model twice{a, a};
        CHECK_USAGE_ERROR(sk::Accumulation{twice},
                          "'a': a second accumulation was started before the first one ended");
        CHECK_THROWS_WITH_AS((sk::SGD{twice, {}}), doctest::Contains("two groups have the path 'a'"),
                             std::invalid_argument);
        sk::Model once{a};
        sk::Accumulation accumulation{once};
        toy::add(accumulation, a, 1);
        static_cast<void>(sk::reduce(std::move(accumulation), sk::sum));
    });
}

TEST_CASE("an exception anywhere in a step leaves the model ready for a fresh one") {
    with_each_policy([](auto&, auto& a, auto& b, auto& model, auto& optimizer) {
        const auto abandoned_step = [&](int where) {
            sk::Accumulation accumulation{model};
            for (auto* layer : {&b, &a}) {
                auto window = layer->unshard();
                auto handle = accumulation.gradients(*layer);
                toy::fill(handle, 1000);
                if (where == 0) { throw std::runtime_error("in a backward pass"); }
                layer->reshard(std::move(window));
                accumulation.add(std::move(handle));
                if (where == 1) { throw std::runtime_error("between groups"); }
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            if (where == 2) { throw std::runtime_error("before the update"); }
            optimizer.step(std::move(reduced));
        };
        for (const int where : {0, 1, 2, 0, 2}) { CHECK_THROWS_AS(abandoned_step(where), std::runtime_error); }
        CHECK(biases(a) == stepped(0));
        CHECK(optimizer.steps(a) == 0);
    });
}

TEST_CASE("a handle that outlives its step is refused by the next one, and by add") {
    with_each_policy([](auto&, auto& a, auto&, auto& model, auto&) {
        using Accumulation = decltype(sk::Accumulation{model});
        using Handle = decltype(std::declval<Accumulation&>().gradients(a));
        std::optional<Handle> kept;
        {
            sk::Accumulation accumulation{model};
            kept.emplace(accumulation.gradients(a));
        }
        CHECK_USAGE_ERROR(sk::Accumulation{model},
                          "'a': a step was started while a gradient handle of the last one is out");
        kept.reset();
        sk::Accumulation next{model};
        kept.emplace(next.gradients(a));
        {
            // The step ends under the handle.
            auto ended = std::move(next);
        }
        CHECK_USAGE_ERROR(next.add(std::move(*kept)), "'a': add() outside of an accumulation");
    });
}

TEST_CASE("reduced gradients are consumed once, by an optimizer of the same groups") {
    const auto check = [](const sk::DynamicPolicy& policy, auto& rank, auto& a, auto& b, auto& model,
                          auto& optimizer) {
        sk::Accumulation accumulation{model};
        toy::add(accumulation, a, 1);
        toy::add(accumulation, b, 1);
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        optimizer.step(std::move(reduced));
        const char* const used = "reduced gradients used after an optimizer step consumed them";
        CHECK_USAGE_ERROR(optimizer.step(std::move(reduced)), used);
        CHECK_USAGE_ERROR(sk::global_norm(reduced), used);
        std::vector<double> bias(7);
        CHECK_USAGE_ERROR(reduced.read_full(a, Bias{}, std::span(bias)), used);

        auto c = toy::linear_layer(rank, "c", policy);
        sk::Model other{a, c};  // the same type as `model`
        sk::Accumulation another{other};
        toy::add(another, a, 1);
        toy::add(another, c, 1);
        CHECK_USAGE_ERROR(optimizer.step(sk::reduce(std::move(another), sk::mean)),
                          "optimizer step: these gradients belong to other groups than the optimizer's model");
        CHECK(optimizer.steps(a) == 1);
        CHECK(biases(c) == stepped(0));
    };
    for (const auto& policy : each_policy) {
        on_two_layers(policy, [&](auto&... given) { check(policy, given...); });
    }
}

TEST_CASE("what is added to a range later is not of the model, and is refused by its accumulation") {
    sk::self::run(Flat{1}, [](auto& rank) {
        std::vector<decltype(toy::linear_layer<sk::NoShard>(rank))> layers;
        layers.push_back(toy::linear_layer<sk::NoShard>(rank, "a"));
        sk::Model model{layers};
        sk::SGD optimizer{model, {}};
        layers.push_back(toy::linear_layer<sk::NoShard>(rank, "b"));  // moves the first one
        CHECK(model.size() == 1);
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layers[0], 1);
        CHECK_USAGE_ERROR(accumulation.gradients(layers[1]),
                          "'b': gradients() outside of an accumulation: it is not one of this accumulation's groups");
        CHECK_NOTHROW(optimizer.step(sk::reduce(std::move(accumulation), sk::sum)));
        CHECK_USAGE_ERROR(optimizer.steps(layers[1]),
                          "'b': steps() of a group that is not one of the optimizer's model");
        sk::Model grown{layers};
        sk::Accumulation over_both{grown};
        for (auto& layer : layers) { toy::add(over_both, layer, 1); }
        CHECK_USAGE_ERROR(optimizer.step(std::move(over_both)),
                          "optimizer step: these gradients belong to other groups than the optimizer's model");
        // Refused before anything was reduced: the accumulation is as it was.
        sk::SGD of_both{grown, {}};
        CHECK_NOTHROW(of_both.step(std::move(over_both)));
    });
}

TEST_CASE("a group that ended or was assigned to is refused by the model that lists it") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto a = toy::linear_layer<sk::NoShard>(rank, "a");
        sk::Model model{a};
        sk::SGD optimizer{model, {}};
        auto moved = std::move(a);
        {
            sk::Accumulation accumulation{model};
            toy::add(accumulation, moved, 1);
            CHECK_NOTHROW(optimizer.step(sk::reduce(std::move(accumulation), sk::sum)));
        }
        sk::Model of_moved{a};
        CHECK_USAGE_ERROR(sk::Accumulation{of_moved}, "Model: it was made of a Sharded that had been moved from");
        moved = toy::linear_layer<sk::NoShard>(rank, "again");
        CHECK_USAGE_ERROR(
            sk::Accumulation{model},
            "'a': this group of the model has ended or was assigned to since the model was made; expected "
            "groups that outlive their model: make the model anew, and its optimizer");
    });
}

TEST_CASE("an accumulation knows its last microbatch, and takes no more and no fewer") {
    with_each_policy([](auto& rank, auto& a, auto& b, auto& model, auto& optimizer) {
        CHECK_THROWS_WITH_AS(static_cast<void>(sk::Accumulation{model, 0}),
                             doctest::Contains("0 microbatches given, expected at least 1"), std::invalid_argument);
        {
            sk::Accumulation accumulation{model, 2};
            toy::add(accumulation, a, 1);
            toy::add(accumulation, b, 1);
            toy::add(accumulation, b, 1);
            CHECK_USAGE_ERROR(
                accumulation.gradients(b),
                "'b': gradients() after the last microbatch was reduced: 2 microbatch(es) of this "
                "accumulation were added; say how many there are, as Accumulation{model, microbatches}");
            CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean),
                              "'a': reduce() after 1 of 2 microbatches; call add, or add_zero for one that did not "
                              "use it");
        }
        const auto reductions = [&] {
            return toy::calls(rank, sk::Verb::all_reduce) + toy::calls(rank, sk::Verb::reduce_scatter);
        };
        sk::Accumulation accumulation{model, sk::until_reduced};
        toy::add(accumulation, a, 1);
        toy::add(accumulation, a, 1);
        toy::add(accumulation, b, 4);
        CHECK_USAGE_ERROR(accumulation.set_microbatches(1), "'a': set_microbatches(1) after 2 were added");
        const auto before = reductions();
        accumulation.set_microbatches(2);  // a has them all
        const auto after_a = reductions();
        toy::add(accumulation, b, 2);
        CHECK_USAGE_ERROR(accumulation.set_microbatches(3),
                          "'a': set_microbatches(3) after 2 were added and reduced");
        const auto after_b = reductions();
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        CHECK(reductions() == after_b);  // nothing was left to it
        // A policy that reduces each microbatch has nothing left at the last one; the others reduce there.
        CHECK(after_b - after_a == 1);
        CHECK((after_a - before == 0 || after_a - before == 1));
        optimizer.step(std::move(reduced));
        CHECK(biases(a) == stepped(2));
        CHECK(biases(b) == stepped(6));
    });
}

TEST_CASE("gradients of two models are not mixed") {
    with_each_policy([](auto&, auto& a, auto& b, auto&, auto&) {
        sk::Model only_a{a};
        sk::Model only_b{b};
        sk::Accumulation of_a{only_a};
        sk::Accumulation of_b{only_b};
        const std::string elsewhere =
            "() outside of an accumulation: this group is in another accumulation, which has not ended";
        CHECK_USAGE_ERROR(of_a.gradients(b), "'b': gradients" + elsewhere);
        CHECK_USAGE_ERROR(of_a.skip(b), "'b': skip" + elsewhere);
        auto handle = of_b.gradients(b);
        CHECK_USAGE_ERROR(of_a.add(std::move(handle)), "'b': add" + elsewhere);
        CHECK_USAGE_ERROR(sk::reduce(std::move(of_b), sk::mean),
                          "'b': a gradient handle was dropped without being added");
        toy::add(of_a, a, 1);
        const auto reduced = sk::reduce(std::move(of_a), sk::mean);
        std::vector<double> bias(7);
        CHECK_USAGE_ERROR(reduced.read_full(b, Bias{}, std::span(bias)), "'b': read_full" + elsewhere);
    });
}

TEST_CASE("the optimizer's step of an accumulation is reduce, global_norm, clip and step") {
    for (const double max_norm : {0.5, sk::unlimited}) {
        for (const auto& policy : each_policy) {
            std::vector<double> values[2];
            double norms[2] = {};
            for (const bool at_once : {false, true}) {
                sk::threads::run(Flat{2}, [&](auto& rank) {
                    auto a = toy::linear_layer(rank, "a", policy);
                    sk::Model model{a};
                    sk::SGD optimizer{model, {.learning_rate = 1}};
                    sk::LossScale scale{rank, {.initial = 4}};
                    double norm = 0;
                    for (int step = 0; step < 2; ++step) {
                        sk::Accumulation accumulation{model, 2};
                        toy::add(accumulation, a, static_cast<double>(rank.rank() + 1));
                        toy::add(accumulation, a, 1);
                        if (at_once) {
                            norm =
                                optimizer
                                    .step(std::move(accumulation),
                                          {.divisor = sk::divide_by(3), .max_norm = max_norm, .loss_scale = &scale})
                                    .value();
                        } else {
                            auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(3), scale);
                            const auto taken = sk::global_norm(reduced);
                            norm = taken.value();
                            optimizer.step(std::move(reduced), sk::clip(taken, max_norm));
                        }
                    }
                    CHECK(optimizer.steps(a) == 2);
                    const auto read = biases(a);
                    if (rank.rank() == 0) {
                        values[at_once ? 1 : 0] = read;
                        norms[at_once ? 1 : 0] = norm;
                    }
                });
            }
            CHECK(values[0] == values[1]);
            CHECK(norms[0] == norms[1]);
            CHECK(norms[0] > 0.5);
        }
    }
}

TEST_CASE("options out of range and open windows leave the accumulation to the caller") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto a = toy::linear_layer<sk::NoShard>(rank, "a");
        sk::Model model{a};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, a, 1);
        CHECK_THROWS_WITH_AS(optimizer.step(std::move(accumulation), {.max_norm = -1}),
                             doctest::Contains("optimizer step: max_norm is -1, expected a number > 0"),
                             std::invalid_argument);
        {
            const auto window = a.unshard();
            CHECK_USAGE_ERROR(optimizer.step(std::move(accumulation)),
                              "'a': optimizer step or load while 1 window(s) are open; reshard them first");
        }
        CHECK_NOTHROW(optimizer.step(std::move(accumulation), {.divisor = sk::sum}));
        CHECK(biases(a) == stepped(1));
        CHECK_USAGE_ERROR(optimizer.step(std::move(accumulation)), "reduce: this accumulation was already reduced");
    });
}

TEST_CASE("add_zero runs the collective and adds nothing") {
    with_each_policy([](auto& rank, auto& a, auto& b, auto& model, auto&) {
        sk::Accumulation accumulation{model, 2};
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
            // Rank 0 uses a in the first microbatch only, rank 1 in the second only.
            if (rank.rank() == static_cast<std::size_t>(microbatch)) {
                toy::add(accumulation, a, 1 + 2 * microbatch);
            } else {
                accumulation.add_zero(a);
            }
            accumulation.add_zero(b);
        }
        const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        std::vector<double> bias(7);
        reduced.read_full(a, Bias{}, std::span(bias));
        CHECK(bias == std::vector<double>{4, 8, 12, 16, 20, 24, 28});
        reduced.read_full(b, Bias{}, std::span(bias));
        CHECK(bias == std::vector<double>(7, 0.0));
    });
}

TEST_CASE("skip: no collective, and parameters, states and step count stay") {
    const auto check = [](const sk::DynamicPolicy& policy) {
        sk::threads::run(Flat{2}, [&](auto& rank) {
            auto a = toy::linear_layer(rank, "a", policy);
            auto b = toy::linear_layer(rank, "b", policy);
            sk::Model model{a, b};
            sk::AdamW optimizer{model, {.learning_rate = 1, .weight_decay = 0.5}};
            const auto step = [&](auto use_b) {
                rank.traffic().clear();
                sk::Accumulation accumulation{model};
                toy::add(accumulation, a, 1);
                use_b(accumulation);
                auto reduced = sk::reduce(std::move(accumulation), sk::mean);
                const std::uint64_t reductions =
                    toy::calls(rank, sk::Verb::all_reduce) + toy::calls(rank, sk::Verb::reduce_scatter);
                const double norm = sk::global_norm(reduced).value();
                optimizer.step(std::move(reduced));
                return std::pair(reductions, norm);
            };
            const auto [both, norm_of_both] = step([&](auto& accumulation) { toy::add(accumulation, b, 1); });
            CHECK(both == 2);
            const auto before = biases(b);
            const auto a_before = biases(a);
            const auto states_of_b = [&] {
                std::vector<double> values;
                for (const auto& shard : optimizer.shards()) {
                    if (shard.path != "b") { continue; }
                    const auto* const data = static_cast<const double*>(shard.data);
                    values.insert(values.end(), data, data + shard.range.size());
                }
                return values;
            };
            const auto states = states_of_b();
            CHECK(states.size() >= 20);  // rank 1 of 2 has the fewest: 10 elements, two states
            const auto [one, norm_of_one] = step([&](auto& accumulation) { accumulation.skip(b); });
            CHECK(one == 1);
            CHECK(norm_of_one == doctest::Approx(norm_of_both / std::sqrt(2.0)).epsilon(1e-12));
            CHECK(biases(b) == before);
            CHECK(biases(a) != a_before);
            CHECK(states_of_b() == states);
            CHECK(optimizer.steps(a) == 2);
            CHECK(optimizer.steps(b) == 1);
        });
    };
    SUBCASE("no_shard") { check(sk::DynamicPolicy(sk::NoShard{})); }
    SUBCASE("shard_optimizer") { check(sk::DynamicPolicy(sk::ShardOptimizer{})); }
    SUBCASE("full_shard") { check(sk::DynamicPolicy(sk::FullShard{})); }
}

}  // namespace step_state_test
