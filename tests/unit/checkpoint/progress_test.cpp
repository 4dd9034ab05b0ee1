// SPDX-License-Identifier: Apache-2.0
// How far each parameter's updates are, in checkpoints: with one gradient throughout AdamW moves every element by the
// learning rate in each step, whatever its betas, as long as its running products are those of its moments.
#include <shardkit/checkpoint.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "renamed_in_step.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace progress_test {

namespace {

namespace sk = shardkit;
using temporary_folder::Folder;
using Mesh = sk::DeviceMesh<sk::dynamic>;
using Layer = sk::Sharded<sk::TensorList<double>, sk::DynamicPolicy>;

constexpr double rate = 0.1;
constexpr double scale = 32;

sk::TensorList<double> tensors(const std::vector<std::string>& names, const std::vector<std::string>& frozen = {}) {
    std::vector<sk::NamedTensor> list;
    for (const std::string& name : names) {
        const bool is_frozen = std::find(frozen.begin(), frozen.end(), name) != frozen.end();
        list.push_back({name, {5, 3}, {.frozen = is_frozen}});
    }
    return sk::TensorList<double>(list);
}
Layer layer_of(sk::Rank& rank, std::string path, const std::vector<std::string>& names,
               const std::vector<std::string>& frozen = {}) {
    Layer layer(
        rank, std::move(path), tensors(names, frozen),
        {rank.world_size() == 2 ? sk::DynamicPolicy(sk::FullShard{}) : sk::DynamicPolicy(sk::ShardOptimizer{})});
    layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
    return layer;
}
template <class Model>
auto optimizer_of(const Model& model, std::vector<sk::ParamGroup> param_groups = {}) {
    return sk::AdamW{model, {.learning_rate = rate, .epsilon = 1e-30, .weight_decay = 0}, std::move(param_groups)};
}
sk::ParamGroup own(std::vector<std::string> names, double beta1) {
    return {.matches =
                [names = std::move(names)](std::string_view, std::string_view name) {
                    return std::find(names.begin(), names.end(), name) != names.end();
                },
            .beta1 = beta1};
}

std::vector<double> values(Layer& layer, std::size_t p) {
    std::vector<double> whole(layer.parameters()[p].shape.numel());
    layer.read_full(p, whole);
    return whole;
}
/// `steps` steps of all groups, in each of which every element that trains moves by the learning rate.
template <class Model, class Optimizer>
void train(const Model& model, Optimizer& optimizer, std::vector<Layer*> layers, int steps,
           sk::LossScale* loss_scale = nullptr) {
    for (int step = 0; step < steps; ++step) {
        std::vector<std::vector<double>> before;
        sk::Accumulation accumulation{model};
        for (Layer* layer : layers) {
            for (std::size_t p = 0; p < layer->parameters().size(); ++p) { before.push_back(values(*layer, p)); }
            auto gradients = accumulation.gradients(*layer);
            for (std::size_t p = 0; p < layer->parameters().size(); ++p) {
                for (double& g : gradients.view(p)) { g = loss_scale == nullptr ? 0.5 : 0.5 * scale; }
            }
            accumulation.add(std::move(gradients));
        }
        optimizer.step(std::move(accumulation), {.loss_scale = loss_scale});
        std::size_t next = 0;
        for (Layer* layer : layers) {
            for (std::size_t p = 0; p < layer->parameters().size(); ++p) {
                const std::string name = layer->path() + "." + std::string(layer->parameters()[p].name);
                CAPTURE(name);
                CAPTURE(step);
                const auto after = values(*layer, p);
                const double moved = layer->parameters()[p].frozen ? 0 : rate;
                for (std::size_t i = 0; i < after.size(); ++i) {
                    CHECK(std::abs(before[next][i] - after[i] - moved) < 1e-12);
                }
                ++next;
            }
        }
    }
}
/// The same of one group that tp may split.
template <class Model, class Optimizer>
void train_split(const Model& model, Optimizer& optimizer, Layer& layer, int steps) {
    for (int step = 0; step < steps; ++step) {
        std::vector<std::vector<double>> before;
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            before.push_back(values(layer, p));
            for (double& g : gradients.view(p)) { g = 0.5; }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            const auto after = values(layer, p);
            CAPTURE(step);
            CAPTURE(p);
            for (std::size_t i = 0; i < after.size(); ++i) {
                CAPTURE(i);
                CHECK(std::abs(before[p][i] - after[i] - rate) < 1e-12);
            }
        }
    }
}
bool holds(const std::vector<std::string>& list, std::string_view text) {
    return std::find(list.begin(), list.end(), text) != list.end();
}
/// Names of the scalars in a step that begin so.
std::vector<std::string> scalars(const std::string& step, std::string_view begin) {
    std::vector<std::string> names;
    const sk::safetensors::File file(step + "/state/scalars.safetensors");
    for (const auto& tensor : file.tensors()) {
        if (tensor.name.starts_with(begin)) { names.push_back(tensor.name); }
    }
    return names;
}

}  // namespace

TEST_CASE(
    "ParamGroups with betas of their own in another order, split, joined or gone: each parameter goes on with its "
    "own running products") {
    const std::vector<std::string> names{"a", "b", "c", "d"};
    const std::vector<std::vector<sk::ParamGroup>> lists{
        {own({"a"}, 0.5), own({"b", "c"}, 0.8)},
        {own({"b", "c"}, 0.8), own({"a"}, 0.5)},
        {own({"a", "b"}, 0.5), own({"c", "d"}, 0.8)},
        {own({"a", "b", "c", "d"}, 0.6)},
        {own({"d"}, 0.3), own({"a"}, 0.5), own({"b"}, 0.7), own({"c"}, 0.2)},
        {},
    };
    for (std::size_t from = 0; from < lists.size(); ++from) {
        for (std::size_t to = 0; to < lists.size(); ++to) {
            CAPTURE(from);
            CAPTURE(to);
            const Folder folder;
            sk::threads::run(Mesh(2), [&](auto& rank) {
                auto layer = layer_of(rank, "layer", names);
                sk::Model model{layer};
                auto optimizer = optimizer_of(model, lists[from]);
                train(model, optimizer, {&layer}, 3);
                sk::checkpoint::save(rank, folder.path(), 3, sk::checkpoint::State{model, optimizer});
            });
            sk::threads::run(Mesh(3), [&](auto& rank) {
                auto layer = layer_of(rank, "layer", names);
                sk::Model model{layer};
                auto optimizer = optimizer_of(model, lists[to]);
                train(model, optimizer, {&layer}, 1);  // what it was before is gone
                sk::checkpoint::State state{model, optimizer};
                sk::checkpoint::load(rank, folder.file("step-00000003"), state);
                CHECK(optimizer.steps(layer) == 3);
                train(model, optimizer, {&layer}, 2);
                sk::checkpoint::save(rank, folder.path(), 5, state);
                sk::checkpoint::load(rank, folder.file("step-00000005"), state);
                train(model, optimizer, {&layer}, 1);
            });
        }
    }
}

TEST_CASE("a subset of a state: every number that is there is loaded, and each that is not is said to be left") {
    const Folder folder;
    const auto loss_scale_of = [](auto& rank) { return sk::LossScale(rank, {.initial = scale}); };
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "one", {"a", "b"});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model);
        auto loss_scale = loss_scale_of(rank);
        train(model, optimizer, {&layer}, 3, &loss_scale);
        sk::checkpoint::save(rank, folder.path(), 3, sk::checkpoint::State{model, optimizer, loss_scale});
        sk::checkpoint::save(rank, folder.path(), 4, sk::checkpoint::State{model, optimizer});
    });
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "one", {"a", "b"});
        auto further = layer_of(rank, "two", {"a"});
        sk::Model model{layer, further};
        auto optimizer = optimizer_of(model);
        sk::LossScale loss_scale(rank, {.initial = 1024});
        sk::checkpoint::State state{model, optimizer, loss_scale};
        const auto report = sk::checkpoint::load(rank, folder.file("step-00000003"), state, {.subset = true});
        for (const char* left : {"two.a", "exp_avg of two.a", "exp_avg_sq of two.a"}) {
            CHECK(holds(report.left, left));
        }
        for (const char* there : {"tensors.steps", "loss_scale.value", "loss_scale.clean_steps"}) {
            CHECK_FALSE(holds(report.left, there));
        }
        CHECK(report.unused.empty());
        CHECK(optimizer.steps(layer) == 3);
        CHECK(optimizer.steps(further) == 0);
        CHECK(loss_scale.value() == scale);
        CHECK(loss_scale.clean_steps() == 3);
        train(model, optimizer, {&layer, &further}, 2, &loss_scale);

        // Of a state without a loss scale that is the only thing left.
        auto alone = layer_of(rank, "one", {"a", "b"});
        sk::Model one{alone};
        auto other = optimizer_of(one);
        auto further_scale = loss_scale_of(rank);
        sk::checkpoint::State without{one, other, further_scale};
        const auto second = sk::checkpoint::load(rank, folder.file("step-00000004"), without, {.subset = true});
        CHECK(second.left == std::vector<std::string>{"loss_scale.value", "loss_scale.clean_steps"});
        CHECK(further_scale.value() == scale);
        CHECK(other.steps(alone) == 3);
        train(one, other, {&alone}, 2, &further_scale);
    });
}

TEST_CASE("a parameter that was frozen, or that the group did not have, counts from its own first step") {
    const Folder folder;
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "layer", {"a", "b"}, {"b"});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model);
        train(model, optimizer, {&layer}, 3);
        sk::checkpoint::save(rank, folder.path(), 3, sk::checkpoint::State{model, optimizer});
    });
    CHECK(scalars(folder.file("step-00000003"), "tensor.").empty());
    sk::threads::run(Mesh(3), [&](auto& rank) {
        auto layer = layer_of(rank, "layer", {"a", "new", "b"});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model);
        sk::checkpoint::State state{model, optimizer};
        CHECK(has(
            thrown_message<sk::FileError>([&] { sk::checkpoint::load(rank, folder.file("step-00000003"), state); }),
            "exp_avg of layer.b"));
        const auto report = sk::checkpoint::load(rank, folder.file("step-00000003"), state, {.subset = true});
        CHECK(holds(report.left, "exp_avg of layer.b"));
        CHECK(holds(report.left, "exp_avg of layer.new"));
        CHECK(optimizer.steps(layer) == 3);
        train(model, optimizer, {&layer}, 4);
        CHECK(optimizer.steps(layer) == 7);
        sk::checkpoint::save(rank, folder.path(), 7, state);
    });
    CHECK(scalars(folder.file("step-00000007"), "tensor.").size() == 6);
    sk::threads::run(Mesh(2), [&](auto& rank) {
        // In another order, with betas of its own for one of them, and one more.
        auto layer = layer_of(rank, "layer", {"b", "last", "a", "new"});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model, {own({"new"}, 0.5)});
        sk::checkpoint::State state{model, optimizer};
        sk::checkpoint::load(rank, folder.file("step-00000007"), state, {.subset = true});
        train(model, optimizer, {&layer}, 2);
        sk::checkpoint::save(rank, folder.path(), 9, state);
        sk::checkpoint::load(rank, folder.file("step-00000009"), state);
        train(model, optimizer, {&layer}, 2);
        // Back to where all are as far as each other.
        auto first = layer_of(rank, "layer", {"a", "b"}, {"b"});
        sk::Model old{first};
        auto second = optimizer_of(old);
        sk::checkpoint::State frozen{old, second};
        sk::checkpoint::load(rank, folder.file("step-00000009"), frozen, {.subset = true});
        CHECK(second.steps(first) == 9);
        train(old, second, {&first}, 2);
    });
}

TEST_CASE(
    "parameters that become one go on where they are as far as each other, and are refused where they are not") {
    const Folder folder;
    const auto joined = [](std::string_view, const sk::ParameterRecord& parameter) {
        return sk::checkpoint::stored_rows({{"layer.a", 5}, {"layer.b", 5}}, parameter.shape);
    };
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "layer", {"a", "b"});
        sk::Model model{layer};
        auto alike = optimizer_of(model, {own({"a", "b"}, 0.5)});
        train(model, alike, {&layer}, 3);
        sk::checkpoint::save(rank, folder.path(), 1, sk::checkpoint::State{model, alike});
        auto apart = optimizer_of(model, {own({"b"}, 0.5)});
        train(model, apart, {&layer}, 3);
        sk::checkpoint::save(rank, folder.path(), 2, sk::checkpoint::State{model, apart});
        auto first = layer_of(rank, "layer", {"a", "b"}, {"b"});
        sk::Model half{first};
        auto of_half = optimizer_of(half);
        train(half, of_half, {&first}, 3);
        sk::checkpoint::save(rank, folder.path(), 3, sk::checkpoint::State{half, of_half});
    });
    sk::threads::run(Mesh(3), [&](auto& rank) {
        Layer layer(rank, "layer", sk::TensorList<double>{{"ab", {10, 3}}}, {sk::DynamicPolicy(sk::FullShard{})});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model);
        sk::checkpoint::State state{model, optimizer};
        sk::checkpoint::load(rank, folder.file("step-00000001"), state, {.names = joined});
        train(model, optimizer, {&layer}, 2);
        sk::checkpoint::save(rank, folder.path(), 4, state, {.names = joined});
        sk::checkpoint::load(rank, folder.file("step-00000004"), state, {.names = joined});
        train(model, optimizer, {&layer}, 2);
        const auto refused = [&](const char* step) {
            return thrown_message<sk::FileError>(
                [&] { sk::checkpoint::load(rank, folder.file(step), state, {.names = joined, .subset = true}); });
        };
        CHECK(has(refused("step-00000002"),
                  "have 'beta1_power' of 'layer.a' and another one of 'layer.b', which are one parameter here"));
        CHECK(has(refused("step-00000003"), "have 'exp_avg of layer.a' and not 'exp_avg of layer.b'"));
        // Nothing was changed.
        train(model, optimizer, {&layer}, 2);
    });
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "layer", {"a", "b"});
        sk::Model model{layer};
        auto optimizer = optimizer_of(model);
        sk::checkpoint::load(rank, folder.file("step-00000004"), sk::checkpoint::State{model, optimizer});
        train(model, optimizer, {&layer}, 2);
    });
}

TEST_CASE("rows that a parameter has grown by count from their own first step, on every mesh") {
    using Grid = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
    const Folder folder;
    const auto grown = [](std::string_view tensor) { return tensor != "layer.b"; };
    const auto turned = [](std::string_view path, const sk::ParameterRecord& parameter) {
        const std::string name = std::string(path) + "." + std::string(parameter.name);
        return parameter.name == "b" ? sk::checkpoint::stored(name, parameter.shape)
                                     : sk::checkpoint::stored_transposed(name, parameter.shape);
    };
    std::uint64_t step = 0;
    const auto go = [&](const Grid& mesh, const sk::DynamicPolicy& policy, std::size_t rows, bool changes_order) {
        CAPTURE(rows);
        sk::threads::run(mesh, [&](auto& rank) {
            const sk::TensorList<double> list{
                {"row", {rows, 3}}, {"b", {7}}, {"columns", {rows, 4}, {.tp = sk::tp::Split<1>::placement}}};
            Layer layer(rank, "layer", list, {policy});
            layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
            sk::Model model{layer};
            auto optimizer = optimizer_of(model, {own({"columns"}, 0.7)});
            const sk::checkpoint::State state{model, optimizer};
            if (step > 0) {
                const auto report = sk::checkpoint::load(rank, folder.file("step-0000000" + std::to_string(step)),
                                                         state, {.grown = grown});
                CHECK(report.left.empty());
            }
            train_split(model, optimizer, layer, 3);
            if (changes_order) {
                CHECK(has(thrown_message<std::invalid_argument>(
                              [&] { sk::checkpoint::save(rank, folder.path(), step + 1, state, {.names = turned}); }),
                          "the rows that 'layer.row' has grown by have taken fewer steps"));
            }
            sk::checkpoint::save(rank, folder.path(), step + 1, state);
        });
        ++step;
    };
    go(Grid(3, 1), sk::DynamicPolicy(sk::FullShard{}), 5, false);
    go(Grid(1, 2), sk::DynamicPolicy(sk::NoShard{}), 7, true);
    go(Grid(2, 2), sk::DynamicPolicy(sk::FullShard{}), 7, true);
    go(Grid(4, 1), sk::DynamicPolicy(sk::ShardOptimizer{}), 12, true);
    go(Grid(1, 1), sk::DynamicPolicy(sk::FullShard{}), 12, true);
    CHECK(scalars(folder.file("step-00000005"), "part.15.layer.row.").size() == 3);
    CHECK(scalars(folder.file("step-00000005"), "part.21.layer.row.").size() == 3);
    CHECK(scalars(folder.file("step-00000001"), "part.").empty());
}

TEST_CASE("numbers go with the names of tensors, whatever the paths of the groups that save and load them") {
    const std::vector<std::string> paths{"layers.0", "layers.1", "layers.2"};
    const auto stored = [](const std::vector<std::string>& as) {
        return [as](std::string_view path, const sk::ParameterRecord& parameter) {
            const std::string name = as.at(static_cast<std::size_t>(path.back() - '0'));
            return sk::checkpoint::stored(name + "." + std::string(parameter.name), parameter.shape);
        };
    };
    const std::vector<std::vector<std::string>> names{paths,
                                                      {"layers.2", "layers.0", "layers.1"},
                                                      {"x", "y", "layers"},
                                                      {"layers.0.w", "layers.0", "layers.0.w.w"}};
    const std::vector<std::uint64_t> steps{3, 1, 7};
    for (const auto& saved : names) {
        const Folder folder;
        CAPTURE(saved.front());
        sk::threads::run(Mesh(2), [&](auto& rank) {
            std::vector<Layer> layers;
            for (const std::string& path : paths) { layers.push_back(layer_of(rank, path, {"w", "b"})); }
            sk::Model model{layers};
            auto optimizer = optimizer_of(model, {own({"b"}, 0.5)});
            for (std::uint64_t step = 0; step < 7; ++step) {
                sk::Accumulation accumulation{model};
                for (std::size_t l = 0; l < 3; ++l) {
                    if (step + steps[l] < 7) {
                        accumulation.skip(layers[l]);
                        continue;
                    }
                    auto gradients = accumulation.gradients(layers[l]);
                    for (std::size_t p = 0; p < 2; ++p) {
                        for (double& g : gradients.view(p)) { g = 0.5; }
                    }
                    accumulation.add(std::move(gradients));
                }
                optimizer.step(std::move(accumulation));
            }
            sk::checkpoint::save(rank, folder.path(), 7, sk::checkpoint::State{model, optimizer},
                                 {.names = stored(saved)});
        });
        // Into groups at other places of the list.
        std::vector<std::size_t> place{0, 1, 2};
        do {
            sk::threads::run(Mesh(3), [&](auto& rank) {
                std::vector<std::string> as;
                for (const std::size_t from : place) { as.push_back(saved[from]); }
                std::vector<Layer> layers;
                for (const std::string& path : paths) { layers.push_back(layer_of(rank, path, {"w", "b"})); }
                sk::Model model{layers};
                auto optimizer = optimizer_of(model, {own({"b"}, 0.5)});
                const sk::checkpoint::State state{model, optimizer};
                const auto report =
                    sk::checkpoint::load(rank, folder.file("step-00000007"), state, {.names = stored(as)});
                CHECK(report.left.empty());
                for (std::size_t l = 0; l < 3; ++l) { CHECK(optimizer.steps(layers[l]) == steps[place[l]]); }
                train(model, optimizer, {&layers[0], &layers[1], &layers[2]}, 2);
                // Two of them from one tensor.
                as[2] = as[0];
                const auto twice = thrown_message<std::invalid_argument>([&] {
                    sk::checkpoint::load(rank, folder.file("step-00000007"), state,
                                         {.names = stored(as), .subset = true});
                });
                CHECK(has(twice, "'layers.0.w' and 'layers.2.w' are both loaded from '" + as[0] + ".w'"));
                train(model, optimizer, {&layers[0], &layers[1], &layers[2]}, 1);
            });
        } while (std::next_permutation(place.begin(), place.end()));
    }
}

TEST_CASE("states without the numbers that they go with are refused, whatever wrote them") {
    const Folder folder;
    sk::threads::run(Mesh(2), [&](auto& rank) {
        auto layer = layer_of(rank, "layer", {"a", "b"});
        sk::Model model{layer};
        sk::Lion lion{model};
        sk::checkpoint::save(rank, folder.path(), 1, sk::checkpoint::State{model, lion});
        auto optimizer = optimizer_of(model);
        sk::checkpoint::State state{model, optimizer};
        CHECK(has(thrown_message<sk::FileError>(
                      [&] { sk::checkpoint::load(rank, folder.file("step-00000001"), state, {.subset = true}); }),
                  "has 'exp_avg of layer.a' as a state of Lion, expected one of AdamW"));
        sk::checkpoint::load(rank, folder.file("step-00000001"), state, {.states = false});
        train(model, optimizer, {&layer}, 2);
    });
}

}  // namespace progress_test
