// SPDX-License-Identifier: Apache-2.0
// A model whose adapters have a file of their own, under the names that PEFT gives them, and its base another.
#include <shardkit/checkpoint/stored_as.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace adapters_test {

namespace {

using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;

bool is_adapter(std::string_view name) { return name.find("lora_") != std::string_view::npos; }
/// A projection with its adapters in one group: what they adapt is frozen.
template <class Rank>
std::vector<Layer> layers(Rank& rank) {
    std::vector<Layer> made;
    for (int l = 0; l < 2; ++l) {
        made.emplace_back(rank, "model.layers." + std::to_string(l),
                          sk::TensorList<float>{{"q_proj.weight", {6, 5}, {.frozen = true}},
                                                {"q_proj.lora_A.weight", {2, 5}},
                                                {"q_proj.lora_B.weight", {6, 2}}});
    }
    return made;
}
sk::checkpoint::StoredAs of_base(std::string_view path, const sk::ParameterRecord& parameter) {
    return is_adapter(parameter.name) ? sk::checkpoint::not_stored()
                                      : sk::checkpoint::stored_by_path(path, parameter);
}
sk::checkpoint::StoredAs of_adapters(std::string_view path, const sk::ParameterRecord& parameter) {
    if (!is_adapter(parameter.name)) { return sk::checkpoint::not_stored(); }
    return sk::checkpoint::stored("base_model.model." + std::string(path) + "." + std::string(parameter.name),
                                  parameter.shape);
}
double value(std::string_view path, std::string_view name, std::uint64_t i) {
    return static_cast<double>(i) + (path.back() == '1' ? 100 : 0) + (is_adapter(name) ? 1000 : 0);
}
std::string names_in(const std::string& path) {
    const sk::safetensors::File file(path);
    std::string all;
    for (const auto& tensor : file.tensors()) { all += tensor.name + " "; }
    return all;
}
const std::string adapters_names =
    "base_model.model.model.layers.0.q_proj.lora_A.weight base_model.model.model.layers.0.q_proj.lora_B.weight "
    "base_model.model.model.layers.1.q_proj.lora_A.weight base_model.model.model.layers.1.q_proj.lora_B.weight ";

}  // namespace

TEST_CASE("adapters: saved into a file of their own, and loaded beside a base from another") {
    const temporary_folder::Folder folder;
    const std::string adapters = folder.file("adapter_model.safetensors");
    const std::string base = folder.file("model.safetensors");
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        auto all = layers(rank);
        const sk::Model model{all};
        model.initialize(value);
        sk::checkpoint::save_model(rank, adapters, model, {.names = of_adapters});
        sk::checkpoint::save_model(rank, base, model, {.names = of_base});
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::checkpoint::save_model(rank, folder.file("none"), model, {.names = [](auto, const auto&) {
                                                     return sk::checkpoint::not_stored();
                                                 }});
                  }),
                  "save_model: a model without parameters"));
    });
    CHECK(names_in(adapters) == adapters_names);
    CHECK(names_in(base) == "model.layers.0.q_proj.weight model.layers.1.q_proj.weight ");
    CHECK(
        sk::safetensors::File(adapters).read<float>("base_model.model.model.layers.1.q_proj.lora_B.weight").back() ==
        1111);
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        auto all = layers(rank);
        const sk::Model model{all};
        model.initialize([](auto, auto, auto) { return -1.0; });
        CHECK(sk::checkpoint::load_model(rank, adapters, model, {.names = of_adapters}).tensors == 4);
        {
            const auto window = all[1].unshard();
            CHECK(window.view("q_proj.weight")[3] == -1);
            CHECK(window.view("q_proj.lora_B.weight")[3] == 1103);
        }
        CHECK(sk::checkpoint::load_model(rank, base, model, {.names = of_base}).tensors == 2);
        for (auto& layer : all) {
            const auto window = layer.unshard();
            for (std::size_t p = 0; p < 3; ++p) {
                const auto& parameter = layer.parameters()[p];
                for (std::size_t i = 0; i < window.view(p).size(); ++i) {
                    CHECK(window.view(p)[i] == value(layer.path(), parameter.name, i));
                }
            }
        }
        // Neither file fits the other's names, or all parameters.
        CHECK_THROWS_AS(sk::checkpoint::load_model(rank, base, model, {.names = of_adapters}), sk::FileError);
        CHECK_THROWS_AS(sk::checkpoint::load_model(rank, base, model), sk::FileError);
        sk::checkpoint::StoredAs both = sk::checkpoint::not_stored();
        both.name = "x";
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::checkpoint::load_model(rank, base, model,
                                                 {.names = [&](auto, const auto&) { return both; }});
                  }),
                  "as 'x': absent, expected a tensor or nothing else"));
    });
}

TEST_CASE("adapters: a checkpoint of them alone, with their states, goes on beside a base from its own file") {
    const temporary_folder::Folder folder;
    const std::string base = folder.file("model.safetensors");
    const auto trained = [&](std::size_t ranks, int from, int until) {
        std::vector<float> values;
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            auto all = layers(rank);
            const sk::Model model{all};
            if (from == 0) {
                model.initialize(value);
                sk::checkpoint::save_model(rank, base, model, {.names = of_base, .replace = true});
            } else {
                sk::checkpoint::load_model(rank, base, model, {.names = of_base});
            }
            sk::AdamW optimizer{model, {.learning_rate = 0.5}};
            const sk::checkpoint::State state{model, optimizer};
            if (from > 0) {
                sk::checkpoint::load(rank, folder.file("run/step-00000002"), state, {.names = of_adapters});
                CHECK(optimizer.steps(all[1]) == 2);
            }
            for (int t = from; t < until; ++t) {
                sk::Accumulation accumulation{model};
                for (auto& layer : all) {
                    auto gradients = accumulation.gradients(layer);
                    for (const std::size_t p : {1U, 2U}) {
                        for (float& g : gradients.view(p)) { g = static_cast<float>(t + 1) - 2.5F; }
                    }
                    accumulation.add(std::move(gradients));
                }
                optimizer.step(std::move(accumulation));
            }
            if (until == 2) { sk::checkpoint::save(rank, folder.file("run"), 2, state, {.names = of_adapters}); }
            std::vector<float> own;
            for (auto& layer : all) {
                const auto window = layer.unshard();
                for (std::size_t p = 0; p < 3; ++p) {
                    own.insert(own.end(), window.view(p).begin(), window.view(p).end());
                }
            }
            if (rank.rank() == 0) { values = own; }
        });
        return values;
    };
    const std::vector<float> straight = trained(1, 0, 5);
    trained(3, 0, 2);
    CHECK(names_in(folder.file("run/step-00000002/model.safetensors")) == adapters_names);
    CHECK(names_in(folder.file("run/step-00000002/state/exp_avg_sq.safetensors")) == adapters_names);
    CHECK(trained(2, 2, 5) == straight);
}

}  // namespace adapters_test
