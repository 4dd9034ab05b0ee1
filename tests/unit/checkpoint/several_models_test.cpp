// SPDX-License-Identifier: Apache-2.0
#include <shardkit/checkpoint/checkpoint_state.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace several_models_test {

namespace {

using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;

/// Two layers that train by optimizers of their own, and a moving average of the first one's weights.
struct Trainer {
    Layer first, second, average;
    sk::Model firsts{first}, seconds{second};
    sk::Model both{first, second};
    sk::Model all{average, second, first};
    sk::AdamW adamw{firsts, {.learning_rate = 0.1}};
    sk::Lion lion{seconds, {.learning_rate = 0.01}};
    sk::checkpoint::State state{all, adamw};

    template <class Rank>
    explicit Trainer(Rank& rank)
        : first(rank, "first", {{"weight", {11, 3}}}),
          second(rank, "second", {{"weight", {7}}}),
          average(rank, "average.first", {{"weight", {11, 3}}}) {
        for (Layer* const layer : {&first, &second, &average}) {
            layer->initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i) / 4; });
        }
        state.add(lion);
    }

    void step(int number) {
        const auto run = [&](sk::Optimizer& optimizer, Layer& layer, auto& model) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t i = 0; i < gradients.view(0).size(); ++i) {
                gradients.view(0)[i] += static_cast<float>(number + 1) * (i % 3 == 0 ? -0.5F : 0.25F);
            }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
        };
        run(adamw, first, firsts);
        run(lion, second, seconds);
        std::vector<std::span<const float>> now;
        sk::read_shards(first, [&](sk::ShardRun<const float> shard) { now.push_back(shard.values); });
        sk::update_shards(average, [&](sk::ShardRun<float> shard) {
            for (std::size_t i = 0; i < shard.values.size(); ++i) {
                shard.values[i] = 0.5F * shard.values[i] + 0.5F * now.front()[i];
            }
        });
    }

    std::vector<float> values() {
        std::vector<float> values;
        for (Layer* const layer : {&first, &second, &average}) {
            const auto window = layer->unshard();
            values.insert(values.end(), window.view(0).begin(), window.view(0).end());
        }
        return values;
    }
};

std::vector<float> trained(std::size_t ranks, const std::string& folder, int from, int until) {
    std::vector<float> values;
    sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
        Trainer trainer(rank);
        if (from > 0) { CHECK(sk::checkpoint::load(rank, folder + "/step-00000002", trainer.state).left.empty()); }
        for (int step = from; step < until; ++step) { trainer.step(step); }
        if (!folder.empty() && from == 0) { sk::checkpoint::save(rank, folder, 2, trainer.state); }
        const std::vector<float> own = trainer.values();
        if (rank.rank() == 0) { values = own; }
    });
    return values;
}

}  // namespace

TEST_CASE(
    "two optimizers over a part of the model each, and an average that none updates, go on from one checkpoint") {
    const temporary_folder::Folder folder;
    const std::vector<float> straight = trained(1, "", 0, 5);
    trained(3, folder.path(), 0, 2);
    CHECK(trained(2, folder.path(), 2, 5) == straight);
}

TEST_CASE("a state of several models takes an optimizer, a loss scale and bytes of each, in any order of models") {
    const temporary_folder::Folder folder;
    const auto is_weight = [](std::string_view, std::string_view) { return true; };
    const auto use = [&](std::size_t ranks, bool saves) {
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            Trainer trainer(rank);
            sk::Model averages{trainer.average};
            sk::LossScale scale{rank, {.initial = saves ? 8.0 : 2.0}};
            sk::LossScale critics{rank, {.initial = saves ? 16.0 : 2.0}};
            std::vector<std::uint8_t> sampler{1, 2}, critics_sampler{3};
            if (!saves) { sampler = critics_sampler = {}; }
            sk::SGD none{trainer.seconds, {}, {{.matches = is_weight, .updated_by = sk::UpdatedBy::another}}};
            sk::CombinedOptimizer seconds{trainer.seconds, {none, trainer.lion}};
            const sk::Model saved{trainer.firsts, trainer.seconds, averages};
            const sk::Model loaded{averages, trainer.seconds, trainer.firsts};
            sk::checkpoint::State state{saves ? saved : loaded, trainer.adamw, scale};
            state.add(seconds).add(critics, "critic").blob("sampler", sampler).blob("critic", critics_sampler);
            if (saves) {
                for (int step = 0; step < 2; ++step) { trainer.step(step); }
                sk::checkpoint::save(rank, folder.path(), 2, state);
            } else {
                CHECK(sk::checkpoint::load(rank, folder.path() + "/step-00000002", state).left.empty());
                CHECK(scale.value() == 8);
                CHECK(critics.value() == 16);
                CHECK(sampler == std::vector<std::uint8_t>{1, 2});
                CHECK(critics_sampler == std::vector<std::uint8_t>{3});
                CHECK(trainer.adamw.steps(trainer.first) == 2);
                CHECK(seconds.steps(trainer.second) == 2);
            }
            CHECK(has(thrown_message<std::invalid_argument>([&] { state.add(critics, "critic"); }),
                      "checkpoint::State: two loss scales are called 'critic', expected a name for each: "
                      "add(loss_scale, name)"));
            CHECK(has(thrown_message<std::invalid_argument>([&] { state.add(critics); }),
                      "checkpoint::State: two loss scales are called '', expected a name for each: "
                      "add(loss_scale, name)"));
        });
    };
    use(3, true);
    use(2, false);
}

TEST_CASE("a state takes an optimizer of its own groups, and one for each group") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        Trainer trainer(rank);
        using State = sk::checkpoint::State;
        CHECK_THROWS_WITH_AS(State(trainer.seconds, trainer.adamw),
                             doctest::Contains("'first' of the optimizer is no group of the model"),
                             std::invalid_argument);
        sk::AdamW again{trainer.both};
        CHECK_THROWS_WITH_AS(trainer.state.add(again),
                             doctest::Contains("'first' of the optimizer is another optimizer's too"),
                             std::invalid_argument);
        const State assigned{trainer.firsts, trainer.adamw};
        trainer.adamw = sk::AdamW(trainer.seconds);
        const temporary_folder::Folder folder;
        CHECK_THROWS_WITH_AS(
            sk::checkpoint::save(rank, folder.path(), 1, assigned),
            doctest::Contains("'second' is no group of the model, and the optimizer that has it was assigned to"),
            sk::UsageError);
    });
}

}  // namespace several_models_test
