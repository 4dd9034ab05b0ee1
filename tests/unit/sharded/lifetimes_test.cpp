// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/last_words.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace lifetimes_test {

using toy::Bias;
using toy::Flat;

namespace {

struct Only : sk::Param<"only", float, 3> {};

template <class F>
std::string last_words_of_rank(const F& f) {
    return last_words([&] { sk::threads::run(Flat{1}, f); });
}

}  // namespace

TEST_CASE("a container that was moved from says so, with the user's line") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        auto moved = std::move(layer);
        const std::string text = "a Sharded was used after it was moved from";
        CHECK_USAGE_ERROR(layer.unshard(), text);
        CHECK_USAGE_ERROR(layer.path(), text);
        CHECK_USAGE_ERROR(layer.shards(), text);
        CHECK_USAGE_ERROR(layer.number_of("bias"), text);
        CHECK_USAGE_ERROR(layer.initialize([](auto, auto, auto) { return 0.0; }), text);
        sk::Model model{layer};
        const std::string of_model = "Model: it was made of a Sharded that had been moved from";
        CHECK_USAGE_ERROR(sk::Accumulation{model}, of_model);
        CHECK_USAGE_ERROR(sk::SGD{model}, of_model);
        sk::Model alive{moved};
        CHECK_NOTHROW(static_cast<void>(sk::Accumulation{alive}));
        layer = std::move(moved);
        CHECK(layer.path() == "layer");
    });
}

TEST_CASE("a model and an optimizer that were moved from say so, with the user's line") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::Model kept = model;
        const sk::Model taken = std::move(model);
        const std::string of_model =
            "a Model, or an optimizer over it, was used after it was moved from: use the one that it was moved to, "
            "or copy "
            "the Model instead";
        CHECK_USAGE_ERROR(sk::Accumulation{model}, of_model);
        CHECK_USAGE_ERROR(sk::SGD{model}, of_model);
        CHECK_USAGE_ERROR(model.initialize([](auto, auto, auto) { return 0.0; }), of_model);
        CHECK(model.size() == 0);
        CHECK_FALSE(model == kept);
        CHECK(taken == kept);

        sk::SGD optimizer{kept, {.learning_rate = 0.1}};
        sk::SGD other = std::move(optimizer);
        const std::string of_optimizer =
            "an optimizer was used after it was moved from: use the one that it was moved to";
        sk::Accumulation accumulation{kept};
        accumulation.add_zero(layer);
        CHECK_USAGE_ERROR(optimizer.step(std::move(accumulation)), of_optimizer);
        CHECK_USAGE_ERROR(optimizer.set_learning_rate(0.2), of_optimizer);
        CHECK_USAGE_ERROR(optimizer.learning_rate(), of_optimizer);
        CHECK_USAGE_ERROR(optimizer.options(), of_optimizer);
        CHECK_USAGE_ERROR(optimizer.param_groups(), of_optimizer);
        CHECK_USAGE_ERROR(optimizer.steps(layer), of_optimizer);
        CHECK_THROWS_AS(optimizer.shards(), sk::UsageError);
        CHECK_NOTHROW(other.step(std::move(accumulation)));  // which was not consumed
    });
}

TEST_CASE("a loss scale that was moved from says so, with the user's line") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::LossScale loss_scale{rank};
        sk::LossScale moved = std::move(loss_scale);
        const std::string text = "a LossScale was used after it was moved from: use the one that it was moved to";
        CHECK_USAGE_ERROR(loss_scale.value(), text);
        CHECK_USAGE_ERROR(loss_scale.skipped_steps(), text);
        CHECK_USAGE_ERROR(loss_scale.restore(4, 7), text);
        CHECK(loss_scale.data() == nullptr);
        sk::Accumulation accumulation{model};
        accumulation.add_zero(layer);
        CHECK_USAGE_ERROR(sk::reduce(std::move(accumulation), sk::mean, loss_scale), text);
        CHECK_NOTHROW(static_cast<void>(sk::reduce(std::move(accumulation), sk::mean, moved)));
    });
}

TEST_CASE("what emplace_back makes has no line of the user's, and says how to get one") {
    sk::threads::run(Flat{1}, [](auto& rank) {
        using Layer = sk::Sharded<sk::Params<Only>, sk::FullShard>;
        std::vector<Layer> layers;
        const auto said = [](auto make) { return thrown_message<std::invalid_argument>(make); };
        const std::string hidden = said([&] { layers.emplace_back(rank, ""); });
        CHECK(has(hidden,
                  "expected a name as 'blocks.3' (a line that emplace_back, make_unique or the like hides: write "
                  "push_back({...}), or pass SourceLocation::current() last)"));
        CHECK_FALSE(has(hidden, "c++"));
        CHECK(has(said([&] { layers.push_back({rank, ""}); }), "lifetimes_test.cpp:"));
        CHECK(has(said([&] {
                      layers.emplace_back(rank, "", typename Layer::Tensors{}, typename Layer::Options{},
                                          sk::SourceLocation::current());
                  }),
                  "lifetimes_test.cpp:"));
    });
}

TEST_CASE("a container that ends, or is assigned to, under an open window") {
    const std::string ended = last_words_of_rank([](auto& rank) {
        std::optional layer(toy::linear_layer<sk::FullShard>(rank));
        const auto window = layer->unshard();
        layer.reset();
    });
    CHECK(has(ended, "shardkit: 'layer' ended or was assigned to while 1 window(s) of it are open"));
    CHECK(has(ended, "lifetimes_test.cpp:"));
    const std::string assigned = last_words_of_rank([](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank, "a");
        const auto window = layer.unshard();
        layer = toy::linear_layer<sk::NoShard>(rank, "b");
    });
    CHECK(has(assigned, "'a' ended or was assigned to while 1 window(s)"));
    CHECK(last_words_of_rank([](auto& rank) {
              auto layer = toy::linear_layer<sk::NoShard>(rank, "a");
              { const auto window = layer.unshard(); }
              layer = toy::linear_layer<sk::NoShard>(rank, "b");
          }) == "it lives");
}

TEST_CASE("a container that ends in the middle of a step") {
    const std::string words = last_words_of_rank([](auto& rank) {
        std::optional layer(toy::linear_layer<sk::FullShard>(rank));
        sk::Model model{*layer};
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(*layer);
        layer.reset();
    });
    CHECK(has(words, "'layer' ended or was assigned to while an accumulation or gradients over it live on"));
}

TEST_CASE("an optimizer that ends, or is assigned to, in the middle of a step in backward") {
    const auto words = [](auto&& meddle) {
        return last_words_of_rank([&](auto& rank) {
            auto layer = toy::linear_layer<sk::FullShard>(rank);
            sk::Model model{layer};
            std::optional optimizer(sk::SGD{model, {.learning_rate = 0.1}});
            sk::Accumulation accumulation{model};
            optimizer->step_in_backward(accumulation);
            meddle(model, optimizer);
        });
    };
    CHECK(has(words([](auto&, auto& optimizer) { optimizer.reset(); }),
              "an optimizer ended or was moved during a step in backward"));
    CHECK(has(words([](auto& model, auto& optimizer) {
                  *optimizer = sk::SGD{model, {.learning_rate = 0.2}};
              }),
              "an optimizer was assigned to during a step in backward"));
    CHECK(words([](auto&, auto&) {}) == "it lives");
}

TEST_CASE("a container that outlives its rank") {
    const std::string words = last_words([] {
        using Layer = toy::LinearLayer<sk::DynamicPolicy>;
        std::optional<Layer> carried;
        sk::threads::run(Flat{1}, [&](auto& rank) { carried = toy::linear_layer<sk::FullShard>(rank, "carried"); });
        static_cast<void>(carried->path());
    });
    CHECK(has(words, "rank 0 of mesh "));
    CHECK(has(words, "ended before 'carried' made with it"));
}

}  // namespace lifetimes_test
