// SPDX-License-Identifier: Apache-2.0
// A step in backward updates each group behind its last reduction: the bits are those of a plain step, and whatever
// needs all gradients at once is refused.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/chosen.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace step_in_backward_test {

namespace {

template <class P>
using Layer = sk::Sharded<sk::TensorList<typename P::Gather>, sk::DynamicPolicy, P>;

template <class P>
std::vector<Layer<P>> make_layers(sk::Rank& rank, const sk::DynamicPolicy& policy, sk::GradientRelease release,
                                  std::size_t count = 4) {
    std::vector<Layer<P>> layers;
    for (std::size_t l = 0; l < count; ++l) {
        typename Layer<P>::Options options{policy};
        options.gradient_release = release;
        layers.emplace_back(rank, "layers." + std::to_string(l),
                            sk::TensorList<typename P::Gather>{{"weight", {33, 7}}, {"bias", {9}}}, options);
        layers.back().initialize(
            [l](auto, auto, std::uint64_t i) { return 0.0625 * static_cast<double>((i + 3 * l) % 17); });
    }
    return layers;
}

/// One microbatch of one layer: a gradient that depends on the rank and on the parameters.
template <class P>
void add(sk::Accumulation& accumulation, Layer<P>& layer, std::size_t rank) {
    auto window = layer.unshard();
    auto handle = accumulation.gradients(layer);
    const auto values = window.view("weight");
    const auto gradients = handle.view("weight");
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const float value = static_cast<float>(values.data()[i]) * static_cast<float>(rank + 1) +
                            0.1F * static_cast<float>(i % 5) - 0.3F;
        gradients.data()[i] = typename P::Gradient(static_cast<float>(gradients.data()[i]) + value);
    }
    layer.reshard(std::move(window));
    accumulation.add(std::move(handle));
}

enum class Way : std::uint8_t { plain, in_backward, released };

/// What each rank holds after three steps of four layers: the second layer is used twice in a step, the last one is
/// skipped in step 1, and in step 2 rank 0 does not use the first.
template <class P>
std::vector<double> train(std::size_t ranks, const sk::DynamicPolicy& policy, Way way) {
    std::vector<std::vector<double>> held(ranks);
    sk::threads::run(
        sk::DeviceMesh{ranks},
        [&](auto& rank) {
            using Release = sk::GradientRelease;
            auto layers = make_layers<P>(rank, policy, way == Way::released ? Release::at_update : Release::never);
            sk::Model model{layers};
            sk::AdamW optimizer{model, {.learning_rate = 0.1}};
            for (int step = 0; step < 3; ++step) {
                optimizer.set_learning_rate(0.1 / (step + 1));
                sk::Accumulation accumulation{model};
                accumulation.set_microbatches(layers[1], 2);
                if (way != Way::plain) { optimizer.step_in_backward(accumulation, {.divisor = sk::divide_by(3)}); }
                const auto use = [&](std::size_t l) { add<P>(accumulation, layers[l], rank.rank()); };
                if (step == 1) {
                    accumulation.skip(layers[3]);
                } else {
                    use(3);
                }
                use(1);
                use(2);
                use(1);
                if (step == 2 && rank.rank() == 0) {
                    layers[0].reshard(layers[0].unshard());
                    accumulation.add_zero(layers[0]);
                } else {
                    use(0);
                }
                optimizer.step(std::move(accumulation), {.divisor = sk::divide_by(3)});
            }
            std::vector<double>& mine = held[rank.rank()];
            for (const auto& layer : layers) { mine.push_back(static_cast<double>(optimizer.steps(layer))); }
            for (auto& layer : layers) {
                for (const std::size_t p : {0U, 1U}) {
                    std::vector<double> values(p == 0 ? 231 : 9);
                    layer.read_full(p, values);
                    mine.insert(mine.end(), values.begin(), values.end());
                }
                sk::read_shards(layer, [&](auto run) {
                    for (const auto value : run.values) {
                        mine.push_back(static_cast<double>(static_cast<float>(value)));
                    }
                });
            }
        },
        sk::RankOptions{.in_flight = 2});
    std::vector<double> all;
    for (const auto& each : held) { all.insert(all.end(), each.begin(), each.end()); }
    return all;
}

const std::vector<sk::DynamicPolicy> policies{
    toy::chosen(sk::NoShard{}),          toy::chosen(sk::ShardOptimizer{}), toy::chosen(sk::ShardGradOp{}),
    toy::chosen(sk::FullShard{}),        toy::chosen(sk::HybridShard<2>{}), toy::chosen(sk::HybridOptimizer<2>{}),
    toy::chosen(sk::SecondaryShard<2>{})};

/// A step of a layer that is released, on one rank.
struct OneStep {
    explicit OneStep(sk::Rank& rank, sk::GradientRelease release)
        : layers(make_layers<sk::Precision<float>>(rank, toy::chosen(sk::NoShard{}), release, 2)),
          model(layers),
          optimizer(model, {.learning_rate = 0.1}) {}
    void use(sk::Accumulation& accumulation, std::size_t l) { add<sk::Precision<float>>(accumulation, layers[l], 0); }
    std::vector<Layer<sk::Precision<float>>> layers;
    sk::Model model;
    sk::AdamW optimizer;
};
void on_one_rank(sk::GradientRelease release, const std::function<void(OneStep&)>& f) {
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        OneStep one(rank, release);
        f(one);
    });
}

}  // namespace

TEST_CASE("the bits are those of a plain step, for every policy, precision and number of ranks") {
    for (const std::size_t ranks : {1U, 2U, 4U}) {
        for (const sk::DynamicPolicy& policy : policies) {
            if (ranks % policy.shard_group(ranks) != 0) { continue; }
            CAPTURE(ranks);
            CAPTURE(policy.values(ranks).name);
            const auto check = [&](auto precision) {
                using P = decltype(precision);
                const std::vector<double> plain = train<P>(ranks, policy, Way::plain);
                CHECK(train<P>(ranks, policy, Way::in_backward) == plain);
                CHECK(train<P>(ranks, policy, Way::released) == plain);
                CHECK(plain[0] == 3);
                CHECK(plain[3] == 2);
            };
            check(sk::Precision<float>{});
            check(sk::Precision<sk::bf16, float, sk::bf16, float>{});
        }
    }
}

TEST_CASE("a norm, clipping, a loss scale and another divisor are refused, and leave the step as it was") {
    on_one_rank(sk::GradientRelease::at_update, [](OneStep& one) {
        sk::LossScale scale{sk::detail::rank_of(one.model, {})};
        const char* const all =
            " needs the gradients of all groups before the first update, and a step in backward updates each group "
            "behind its own reduction; expected one of both";
        sk::Accumulation accumulation{one.model};
        CHECK_USAGE_ERROR(one.optimizer.step_in_backward(accumulation, {.max_norm = 1.5}),
                          std::string("optimizer step_in_backward: max_norm 1.5") + all);
        CHECK_USAGE_ERROR(one.optimizer.step_in_backward(accumulation, {.loss_scale = &scale}),
                          std::string("optimizer step_in_backward: a loss scale") + all);
        CHECK_USAGE_ERROR(static_cast<void>(accumulation.gradients(one.layers[0])),
                          "'layers.0': gradients() of a group with GradientRelease::at_update, and no update follows "
                          "its reduction; expected optimizer.step_in_backward(accumulation) before");
        const auto begun = sk::SourceLocation::current();
        one.optimizer.step_in_backward(accumulation);
        CHECK_USAGE_ERROR(one.optimizer.set_learning_rate(1),
                          std::string("optimizer: set_learning_rate during the step in backward that began at ") +
                              begun.file + ":" + std::to_string(begun.line + 1) +
                              "; expected before it, or after optimizer.step(std::move(accumulation))");
        one.use(accumulation, 1);
        one.use(accumulation, 0);
        CHECK_USAGE_ERROR(one.optimizer.step(std::move(accumulation), {.max_norm = 2}),
                          std::string("optimizer step: max_norm 2") + all);
        CHECK_USAGE_ERROR(one.optimizer.step(std::move(accumulation), {.divisor = sk::divide_by(4)}),
                          std::string("optimizer step: a divisor of 4, and step_in_backward at ") + begun.file + ":" +
                              std::to_string(begun.line + 1) + " gave 1; expected the same");
        CHECK_USAGE_ERROR(static_cast<void>(sk::reduce(std::move(accumulation), sk::mean)),
                          "reduce: the groups of this accumulation are updated in its backward pass, which releases "
                          "their gradients; expected optimizer.step(std::move(accumulation))");
        const auto norm = one.optimizer.step(std::move(accumulation));
        CHECK_USAGE_ERROR(norm.value(),
                          "GlobalNorm: of a step that updated each group in its backward pass, when the gradients of "
                          "the others were not there; expected a step without step_in_backward where a norm is asked "
                          "for");
        CHECK(one.optimizer.steps(one.layers[0]) == 1);
        one.optimizer.set_learning_rate(1);
    });
}

TEST_CASE("what cannot begin a step in backward says why") {
    on_one_rank(sk::GradientRelease::never, [](OneStep& one) {
        {
            sk::Accumulation accumulation{one.model, sk::until_reduced};
            CHECK_USAGE_ERROR(one.optimizer.step_in_backward(accumulation),
                              "'layers.0': step_in_backward with microbatches until_reduced, whose last one is not "
                              "known; expected their number, as Accumulation{model, microbatches}");
        }
        {
            sk::Accumulation accumulation{one.model};
            one.use(accumulation, 1);
            CHECK_USAGE_ERROR(one.optimizer.step_in_backward(accumulation),
                              "'layers.1': step_in_backward after gradients were handed out; expected it before");
        }
        {
            const auto following =
                sk::schedule::follow(one.model, sk::schedule::layered_step(sk::describe_groups(one.model)));
            sk::Accumulation accumulation{one.model};
            CHECK_USAGE_ERROR(one.optimizer.step_in_backward(accumulation),
                              "'layers.0': step_in_backward while a schedule is followed");
        }
        sk::CombinedOptimizer combined{one.model, {one.optimizer}};
        sk::Accumulation accumulation{one.model};
        CHECK_USAGE_ERROR(combined.step_in_backward(accumulation),
                          "CombinedOptimizer: step_in_backward of several optimizers; expected that of a part");
        sk::SGD left{one.model,
                     {.learning_rate = 1},
                     {{.matches = [](auto, std::string_view name) { return name == "bias"; },
                       .updated_by = sk::UpdatedBy::another}}};
        CHECK(has(thrown_message<sk::UsageError>([&] { left.step_in_backward(accumulation); }),
                  "'layers.0.bias' is another optimizer's"));
        sk::Model first{one.layers[0]};
        sk::SGD part{first, {.learning_rate = 1}};
        CHECK(has(thrown_message<sk::UsageError>([&] { part.step_in_backward(accumulation); }),
                  "these gradients belong to other groups than the optimizer's model"));
        one.optimizer.step_in_backward(accumulation);
        sk::SGD other{one.model, {.learning_rate = 1}};
        CHECK_USAGE_ERROR(
            other.step_in_backward(accumulation),
            "optimizer step_in_backward: another optimizer updates the groups of this accumulation already");
        one.use(accumulation, 1);
        one.use(accumulation, 0);
        CHECK_USAGE_ERROR(
            other.step(std::move(accumulation)),
            "optimizer step: another optimizer updates the groups of this accumulation; expected its step");
        one.optimizer.step(std::move(accumulation));
    });
    on_one_rank(sk::GradientRelease::at_update, [](OneStep& one) {
        CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(sk::assume_reduced(one.model)); }),
                  "assume_reduced() of a group with GradientRelease::at_update"));
        CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(sk::gradient_shard(one.layers[0])); }),
                  "gradient_shard() of a group with GradientRelease::at_update"));
    });
}

TEST_CASE("a group that was updated is not used, added to, saved or loaded until the step is closed") {
    const temporary_folder::Folder folder;
    on_one_rank(sk::GradientRelease::at_update, [&](OneStep& one) {
        sk::Accumulation accumulation{one.model};
        one.optimizer.step_in_backward(accumulation);
        {
            const auto window = one.layers[1].unshard();
            auto handle = accumulation.gradients(one.layers[1]);
            CHECK(has(thrown_message<sk::UsageError>([&] { accumulation.add(std::move(handle)); }),
                      "'layers.1': optimizer step or load while 1 window(s) are open"));
        }
    });
    on_one_rank(sk::GradientRelease::at_update, [&](OneStep& one) {
        sk::Accumulation accumulation{one.model};
        one.optimizer.step_in_backward(accumulation);
        one.use(accumulation, 1);
        const auto refused = [](const char* verb) {
            return std::string("'layers.1': ") + verb +
                   " between the group's update and the end of the step that updates it in its backward pass; "
                   "expected after optimizer.step(std::move(accumulation))";
        };
        CHECK_USAGE_ERROR(static_cast<void>(one.layers[1].unshard()), refused("unshard"));
        CHECK_USAGE_ERROR(one.layers[1].load("bias", std::vector<float>(9)), refused("load"));
        CHECK(has(thrown_message<sk::UsageError>([&] {
                      sk::checkpoint::save(sk::detail::rank_of(one.model, {}), folder.path(), 0,
                                           sk::checkpoint::State{one.model, one.optimizer});
                  }),
                  "save: 'layers.0' is within an accumulation"));
        CHECK(has(thrown_message<sk::UsageError>([&] { one.use(accumulation, 1); }), refused("unshard")));
        CHECK(has(thrown_message<sk::UsageError>([&] { accumulation.add_zero(one.layers[1]); }),
                  "add_zero() after the last microbatch was reduced"));
        CHECK_USAGE_ERROR(one.optimizer.step(std::move(accumulation)),
                          "'layers.0': reduce() before any gradient was added; call add, add_zero or skip");
        one.use(accumulation, 0);
        one.optimizer.step(std::move(accumulation));
        static_cast<void>(one.layers[1].unshard());
    });
}

TEST_CASE("a step that ends half way leaves what it has updated torn until it is loaded") {
    const temporary_folder::Folder folder;
    on_one_rank(sk::GradientRelease::at_update, [&](OneStep& one) {
        sk::checkpoint::save(sk::detail::rank_of(one.model, {}), folder.path(), 0,
                             sk::checkpoint::State{one.model, one.optimizer});
        std::string began;
        const auto fail = [&](std::size_t updated) {
            sk::Accumulation accumulation{one.model};
            const auto where = sk::SourceLocation::current();
            one.optimizer.step_in_backward(accumulation);
            began = std::string(where.file) + ":" + std::to_string(where.line + 1);
            for (std::size_t l = 2; l > 2 - updated; --l) { one.use(accumulation, l - 1); }
            throw std::runtime_error("backward");
        };
        CHECK(thrown_message<std::runtime_error>([&] { fail(0); }) == "backward");
        static_cast<void>(one.layers[1].unshard());
        CHECK(thrown_message<std::runtime_error>([&] { fail(1); }) == "backward");
        static_cast<void>(one.layers[1].unshard());  // its update was not given yet
        CHECK(thrown_message<std::runtime_error>([&] { fail(2); }) == "backward");
        static_cast<void>(one.layers[0].unshard());
        const std::string torn =
            "but the step in backward that began at " + began +
            " has updated 'weight' and ended before optimizer.step closed it, so that groups are "
            "of different steps; expected a load of parameters and optimizer states before";
        const std::string window = "'layers.1': unshard, " + torn;
        CHECK_USAGE_ERROR(static_cast<void>(one.layers[1].unshard()), window);
        CHECK_USAGE_ERROR(static_cast<void>(sk::Accumulation{one.model}), "'layers.1': a step begins, " + torn);
        one.layers[1].initialize([](auto, auto, auto) { return 1.0; });
        CHECK_USAGE_ERROR(static_cast<void>(one.layers[1].unshard()), window);
        const auto saved = sk::checkpoint::latest(sk::detail::rank_of(one.model, {}), folder.path());
        sk::checkpoint::load(sk::detail::rank_of(one.model, {}), saved->path,
                             sk::checkpoint::State{one.model, one.optimizer});
        sk::Accumulation accumulation{one.model};
        one.optimizer.step_in_backward(accumulation);
        one.use(accumulation, 1);
        one.use(accumulation, 0);
        one.optimizer.step(std::move(accumulation));
        CHECK(one.optimizer.steps(one.layers[1]) == 1);
    });
}

}  // namespace step_in_backward_test
