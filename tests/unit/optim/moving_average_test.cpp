// SPDX-License-Identifier: Apache-2.0
// Moving averages of weights, against the recurrence by hand.
#include <shardkit/average/moving_average.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace moving_average_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
template <class E, class P = sk::DefaultPrecision<E>>
using Layer = sk::Sharded<sk::TensorList<E>, sk::DynamicPolicy, P>;

const sk::DynamicPolicy no_shard{sk::NoShard{}}, shard_optimizer{sk::ShardOptimizer{}}, full_shard{sk::FullShard{}};

/// A weight that tp splits, a bias that it does not.
template <class E, class P = sk::DefaultPrecision<E>, class Rank>
Layer<E, P> layer(Rank& rank, const std::string& path, const sk::DynamicPolicy& policy, bool frozen = false) {
    sk::TensorList<E> tensors{{"weight", {6, 5}, {.tp = sk::tp::Split<0>::placement, .frozen = frozen}},
                              {"bias", {7}, {.frozen = frozen}}};
    Layer<E, P> made(rank, path, std::move(tensors), {policy});
    return made;
}
double first_value(std::string_view name, std::uint64_t i) {
    return static_cast<double>(i) + (name == "bias" ? 0.5 : 0.25);
}

/// What values[step] of the weights make of an average that begins as values[0].
double by_hand(const std::vector<double>& values, double decay) {
    double average = values[0];
    for (std::size_t t = 1; t < values.size(); ++t) { average = decay * average + (1 - decay) * values[t]; }
    return average;
}

template <class Model, class Group, class Optimizer>
void step(const Model& model, Group& group, Optimizer& optimizer, double factor) {
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(group);
    for (std::size_t p = 0; p < 2; ++p) {
        for (auto& g : gradients.view(p)) {
            g = static_cast<std::remove_cvref_t<decltype(g)>>(static_cast<float>(factor));
        }
    }
    accumulation.add(std::move(gradients));
    optimizer.step(std::move(accumulation));
}

}  // namespace

TEST_CASE("moving average: the recurrence in fp64 for every policy, on a mesh with tp, shown by windows") {
    struct Case {
        sk::DynamicPolicy policy;
        sk::DynamicPolicy of_average;
    };
    const std::vector<Case> cases{
        {no_shard, no_shard},
        {shard_optimizer, full_shard},
        {sk::DynamicPolicy(sk::ShardGradOp{}), full_shard},
        {full_shard, full_shard},
        {sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::HybridShard<2>{})},
        {sk::DynamicPolicy(sk::HybridOptimizer<2>{}), sk::DynamicPolicy(sk::SecondaryShard<2>{})},
        {sk::DynamicPolicy(sk::SecondaryShard<2>{}), sk::DynamicPolicy(sk::HybridOptimizer<2>{})}};
    for (const double decay : {0.75, 0.25, 1.0, 0.0}) {
        for (const Case& each : cases) {
            sk::threads::run(Mesh{4, 2}, [&](auto& rank) {
                auto trained = layer<double, sk::Precision<double>>(rank, "layer", each.policy);
                auto average = layer<double, sk::Precision<double>>(rank, "average.layer", each.of_average, true);
                trained.initialize([](auto, auto name, auto i) { return first_value(name, i); });
                sk::Model model{trained};
                sk::Model averages{average};
                sk::SGD optimizer{model, {.learning_rate = 0.5}};
                sk::MovingAverage moving{averages, model};
                std::vector<double> moved{0};
                for (int t = 0; t < 4; ++t) {
                    step(model, trained, optimizer, t + 1);
                    moving.update(decay);
                    moved.push_back(moved.back() - 0.5 * (t + 1));
                    for (const char* name : {"weight", "bias"}) {
                        std::vector<double> all(name[0] == 'w' ? 30 : 7);
                        average.read_full(name, all);
                        for (std::size_t i = 0; i < all.size(); ++i) {
                            CHECK(std::abs(all[i] - first_value(name, i) - by_hand(moved, decay)) < 1e-13);
                        }
                    }
                }
            });
        }
    }
}

TEST_CASE("moving average: of a bf16 model's masters, in fp32") {
    sk::threads::run(sk::DeviceMesh<3>{}, [](auto& rank) {
        auto trained = layer<sk::bf16>(rank, "layer", full_shard);
        auto wide = layer<float, sk::Precision<float, sk::bf16>>(rank, "wide.layer", full_shard, true);
        auto rounded = layer<sk::bf16>(rank, "rounded.layer", full_shard, true);
        auto narrow = layer<float>(rank, "narrow.layer", full_shard, true);
        trained.initialize([](auto, auto name, auto i) { return first_value(name, i); });
        sk::Model model{trained};
        sk::Model of_wide{wide};
        sk::Model of_rounded{rounded};
        sk::Model of_narrow{narrow};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::MovingAverage moving{of_wide, model};
        std::vector<double> moved{0};
        for (int t = 0; t < 6; ++t) {
            step(model, trained, optimizer, 0x1p-12);  // which bf16 does not hold beside the values
            moving.update(0.5);
            moved.push_back(moved.back() - 0x1p-12);
        }
        std::vector<float> all(7);
        wide.read_full("bias", all);
        for (std::size_t i = 0; i < 7; ++i) {
            CHECK(std::abs(all[i] - first_value("bias", i) - by_hand(moved, 0.5)) < 1e-6);
        }
        CHECK(has(
            thrown_message<std::invalid_argument>([&] {
                sk::MovingAverage{of_rounded, model};
            }),
            "MovingAverage: 'rounded.layer' keeps averages in bf16, in which what an update adds is lost; expected "
            "fp32 elements or masters"));
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::MovingAverage{of_narrow, model};
                  }),
                  "MovingAverage: 'narrow.layer' has or updates other elements on this rank than 'layer': "));
        auto doubled = layer<double, sk::Precision<double, sk::bf16>>(rank, "double.layer", full_shard, true);
        sk::Model of_double{doubled};
        CHECK_INVALID_ARGUMENT((sk::MovingAverage{of_double, model}),
                               "MovingAverage: 'double.layer' is updated in fp64, and 'layer' in fp32; expected "
                               "masters of one arithmetic type");
    });
}

TEST_CASE("moving average: what does not go together is refused, and changes nothing") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        auto trained = layer<float>(rank, "layer", shard_optimizer);
        auto other = layer<float>(rank, "other", shard_optimizer);
        auto whole = layer<float>(rank, "whole", no_shard, true);
        auto stale = layer<float>(rank, "stale", shard_optimizer, true);
        auto average = layer<float>(rank, "average", full_shard, true);
        auto thawed = layer<float>(rank, "thawed", full_shard);
        trained.initialize([](auto, auto name, auto i) { return first_value(name, i); });
        sk::Model of_thawed{thawed};
        CHECK_INVALID_ARGUMENT(
            (sk::MovingAverage{of_thawed, sk::Model{trained}}),
            "MovingAverage: 'thawed.weight' is not frozen, and its group would hold gradients of an "
            "average; expected Options::frozen with all parameters");
        sk::Model model{trained}, two{trained, other}, of_whole{whole}, of_stale{stale}, of_average{average};
        CHECK_INVALID_ARGUMENT((sk::MovingAverage{of_average, two}),
                               "MovingAverage: the average has 1 groups, the model 2; expected one for each");
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::MovingAverage{of_whole, model};
                  }),
                  "MovingAverage: 'whole' has or updates other elements on this rank than 'layer': "));
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::MovingAverage{of_stale, model};
                  }),
                  "MovingAverage: 'stale' is frozen, and its policy gathers no parameters of such a group; expected "
                  "FullShard"));
        sk::MovingAverage moving{of_average, model};
        CHECK_INVALID_ARGUMENT(moving.update(1.5), "MovingAverage: decay is 1.5, expected a number from 0 to 1");
        CHECK_INVALID_ARGUMENT(moving.update(std::numeric_limits<double>::quiet_NaN()),
                               "MovingAverage: decay is nan, expected a number from 0 to 1");
        {
            const auto window = average.unshard();
            CHECK_THROWS_AS(moving.update(0.5), sk::UsageError);
            CHECK(window.view("weight")[1] == 1.25F);
        }
        moving.update(0.5);
        const auto window = average.unshard();
        CHECK(window.view("weight")[1] == 1.25F);  // equal to the weights, it stays so
        const sk::MovingAverage moved(std::move(moving));
        CHECK_USAGE_ERROR(moving.update(0.5),
                          "a MovingAverage was used after it was moved from: use the one that it was moved to");
    });
}

TEST_CASE("moving average: ranks that differ are told, with both decays") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        auto trained = layer<float>(rank, "layer", full_shard);
        auto average = layer<float>(rank, "average", full_shard, true);
        sk::Model model{trained}, averages{average};
        sk::MovingAverage moving{averages, model};
        moving.update(rank.rank() == 0 ? 0.5 : 0.25);
        const std::string text = thrown_message<sk::CommError>([&] { static_cast<void>(average.unshard()); });
        CAPTURE(text);
        CHECK(has(text, "with decay of the moving average 0.5 (stated at "));
        CHECK(has(text, "with decay of the moving average 0.25 (stated at "));
    });
}

TEST_CASE("moving average: saved and loaded as a part of a state, and as a model of its own") {
    const temporary_folder::Folder folder;
    const auto trained_until = [&](std::size_t ranks, int from, int until) {
        std::vector<float> values(7);
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            auto trained = layer<float>(rank, "layer", full_shard);
            auto average = layer<float>(rank, "average.layer", full_shard, true);
            trained.initialize([](auto, auto name, auto i) { return first_value(name, i); });
            sk::Model model{trained}, averages{average};
            sk::SGD optimizer{model, {.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.5}};
            sk::MovingAverage moving{averages, model};
            const sk::checkpoint::State state{sk::Model{model, averages}, optimizer};
            if (from > 0) { sk::checkpoint::load(rank, folder.file("run/step-00000002"), state); }
            for (int t = from; t < until; ++t) {
                step(model, trained, optimizer, t + 1);
                moving.update(0.75);
            }
            if (until == 2) { sk::checkpoint::save(rank, folder.file("run"), 2, state); }
            std::vector<float> own(7);
            average.read_full("bias", own);
            const auto names = [](std::string_view, const sk::ParameterRecord& p) {
                return sk::checkpoint::StoredAs{
                    .name = std::string(p.name),
                    .shape = p.name == "bias" ? std::vector<std::size_t>{7} : std::vector<std::size_t>{6, 5}};
            };
            if (until == 5) {
                sk::checkpoint::save_model(rank, folder.file("average.safetensors"), averages,
                                           {.names = names, .replace = true});
            }
            if (rank.rank() == 0) { values = own; }
        });
        return values;
    };
    const std::vector<float> straight = trained_until(1, 0, 5);
    trained_until(3, 0, 2);
    CHECK(trained_until(2, 2, 5) == straight);
    const sk::safetensors::File file(folder.file("average.safetensors"));
    CHECK(file.read<float>("bias") == straight);
}

TEST_CASE(
    "moving average: begins as it was loaded, as a copy where it was not, and never from weights that are gone") {
    const temporary_folder::Folder folder;
    // Weights that stay as they are: averages of 1 and of 3.
    const auto with = [&](const auto& use) {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            auto trained = layer<float>(rank, "layer", full_shard);
            auto average = layer<float>(rank, "average.layer", full_shard, true);
            sk::Model model{trained}, averages{average};
            const auto are = [&](float weights, float averaged) {
                std::vector<float> bias(7);
                trained.read_full("bias", bias);
                CHECK(bias == std::vector<float>(7, weights));
                average.read_full("bias", bias);
                CHECK(bias == std::vector<float>(7, averaged));
            };
            use(rank, trained, average, model, averages, are);
        });
    };
    with([&](auto& rank, auto& trained, auto& /*average*/, auto& model, auto& averages, const auto& are) {
        trained.initialize([](auto, auto, auto) { return 1.0; });
        sk::MovingAverage moving{averages, model};
        trained.initialize([](auto, auto, auto) { return 3.0; });
        are(3, 1);
        sk::checkpoint::save(rank, folder.path(), 1, sk::checkpoint::State{sk::Model{model, averages}});
        sk::checkpoint::save(rank, folder.path(), 2, sk::checkpoint::State{model});
    });
    const std::string both = folder.file("step-00000001");
    const std::string weights = folder.file("step-00000002");
    with([&](auto& rank, auto& /*trained*/, auto& /*average*/, auto& model, auto& averages, const auto& are) {
        // Made before the load.
        sk::MovingAverage moving{averages, model};
        sk::checkpoint::load(rank, both, sk::checkpoint::State{sk::Model{model, averages}});
        are(3, 1);
        moving.update(0.5);
        are(3, 2);
        // And behind it; a decay of 0 begins anew.
        sk::MovingAverage second{averages, model};
        are(3, 2);
        second.update(0);
        are(3, 3);
    });
    with([&](auto& rank, auto& trained, auto& /*average*/, auto& model, auto& averages, const auto& are) {
        const sk::checkpoint::State state{sk::Model{model, averages}};
        sk::MovingAverage moving{averages, model};
        CHECK(sk::checkpoint::load(rank, weights, state, {.subset = true}).left.size() == 2);
        are(3, 0);
        const std::string text = thrown_message<sk::UsageError>([&] { moving.update(0.5); });
        CHECK(has(text, "a load has read 'layer.weight' since the average began and not 'average.layer.weight'"));
        are(3, 0);
        moving.update(0);
        are(3, 3);
        trained.initialize([](auto, auto, auto) { return 5.0; });
        moving.update(0.5);
        are(5, 4);
    });
    with([&](auto& rank, auto& /*trained*/, auto& /*average*/, auto& model, auto& averages, const auto& are) {
        sk::checkpoint::load(rank, weights, sk::checkpoint::State{sk::Model{model, averages}}, {.subset = true});
        sk::MovingAverage moving{averages, model};
        are(3, 3);
    });
    with([&](auto& rank, auto& /*trained*/, auto& /*average*/, auto& model, auto& averages, const auto& /*are*/) {
        const auto of_bias = [](std::string_view path, const sk::ParameterRecord& parameter) {
            return parameter.name == "bias" ? sk::checkpoint::stored_by_path(path, parameter)
                                            : sk::checkpoint::not_stored();
        };
        sk::checkpoint::load(rank, both, sk::checkpoint::State{averages}, {.names = of_bias, .subset = true});
        CHECK_INVALID_ARGUMENT(
            (sk::MovingAverage{averages, model}),
            "MovingAverage: a load has read 1 of the 2 parameters of 'average.layer', of which the "
            "others have no average: expected all or none");
    });
}

TEST_CASE(
    "moving average: of a frozen parameter in bf16 it is what checkpoints have of it, before a resume and after") {
    for (const auto masters : {sk::MasterWeights::kept, sk::MasterWeights::split}) {
        const temporary_folder::Folder folder;
        const auto run = [&](bool resumes) {
            std::vector<float> averaged(7);
            sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
                using Of = Layer<sk::bf16>;
                sk::TensorList<sk::bf16> tensors{{"weight", {6, 5}}, {"bias", {7}, {.frozen = true}}};
                typename Of::Options options{full_shard};
                options.master = masters;
                Of trained(rank, "layer", std::move(tensors), options);
                auto average = layer<float, sk::Precision<float, sk::bf16>>(rank, "average", full_shard, true);
                sk::Model model{trained};
                sk::Model averages{average};
                trained.initialize([&](auto, auto, auto) { return resumes ? 7.0 : 0.1; });
                const sk::checkpoint::State of_model{model};
                const sk::checkpoint::State of_average{averages};
                if (resumes) { sk::checkpoint::load(rank, folder.file("a/step-00000001"), of_model); }
                if (resumes) { sk::checkpoint::load(rank, folder.file("b/step-00000001"), of_average); }
                sk::MovingAverage moving{averages, model};
                if (!resumes) { sk::checkpoint::save(rank, folder.file("a"), 1, of_model); }
                if (!resumes) { sk::checkpoint::save(rank, folder.file("b"), 1, of_average); }
                for (int t = 0; t < 20; ++t) { moving.update(0.75); }
                average.read_full("bias", averaged);
            });
            return averaged;
        };
        const std::vector<float> expected(7, 0.10009765625F);  // bf16 of 0.1
        CHECK(run(false) == expected);
        CHECK(run(true) == expected);
    }
}

}  // namespace moving_average_test
