// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/no_shard.hpp>

#include "unit/last_words.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace lifetimes_test {

using toy::Bias;
using toy::Flat;

namespace {

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

TEST_CASE("a container that outlives its rank") {
    const std::string words = last_words([] {
        using Layer = toy::LinearLayer<sk::DynamicPolicy, sk::threads::Engine>;
        std::optional<Layer> carried;
        sk::threads::run(Flat{1}, [&](auto& rank) { carried = toy::linear_layer<sk::FullShard>(rank, "carried"); });
        static_cast<void>(carried->path());
    });
    CHECK(has(words, "rank 0 of mesh "));
    CHECK(has(words, "ended before 'carried' made with it"));
}

}  // namespace lifetimes_test
