// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/policy/shard_policy.hpp>
#include <shardkit/step/model.hpp>

/// A model small enough to be written down twice: once with the library, once as plain loops over vectors.
/// Its groups: a parameter alone that no world size divides, three equal groups of two parameters, and a group of
/// four elements, which is smaller than most worlds. In the build's inline namespace, because programs that hold
/// checked and unchecked code use it in both.
namespace toy SHARDKIT_BUILD {

namespace sk = shardkit;

struct Table : sk::Param<"table", float, sk::dynamic, 3> {};
struct Weight : sk::Param<"weight", float, sk::dynamic, sk::dynamic> {};
struct Bias : sk::Param<"bias", float, sk::dynamic> {};
using Linear = sk::Params<Weight, Bias>;
struct Gain : sk::Param<"gain", float, 1> {};
struct Shift : sk::Param<"shift", float, 2> {};
struct Temperature : sk::Param<"temperature", float> {};
using Tail = sk::Params<Gain, Shift, Temperature>;

inline constexpr std::size_t rows = 131;
inline constexpr std::size_t outputs = 7;
inline constexpr std::size_t inputs = 5;

struct Tensor {
    std::string_view path;
    std::string_view name;
    std::size_t numel;
};
/// All tensors in the model's order.
inline constexpr std::array<Tensor, 10> tensors{{{"table", "table", rows * 3},
                                                 {"layers.0", "weight", outputs* inputs},
                                                 {"layers.0", "bias", outputs},
                                                 {"layers.1", "weight", outputs* inputs},
                                                 {"layers.1", "bias", outputs},
                                                 {"layers.2", "weight", outputs* inputs},
                                                 {"layers.2", "bias", outputs},
                                                 {"tail", "gain", 1},
                                                 {"tail", "shift", 2},
                                                 {"tail", "temperature", 1}}};

inline std::size_t number_of(std::string_view path, std::string_view name) {
    std::size_t number = 0;
    while (tensors[number].path != path || tensors[number].name != name) { ++number; }
    return number;
}

/// Where training starts: another value for every element of every tensor.
inline double initial_value(std::size_t tensor, std::uint64_t i) {
    return 0.5 * std::sin(0.37 * static_cast<double>(i) + 1.9 * static_cast<double>(tensor));
}
/// d loss / d element for one sample: depends on the element's value, its place, its tensor and the sample.
inline double gradient(double value, std::size_t tensor, std::size_t i, std::size_t step, std::size_t sample) {
    const std::size_t phase = (sample * 31 + tensor * 17 + i * 7 + step * 5) % 63;
    return std::cos(1.3 * value + 0.1 * static_cast<double>(phase)) * (1 + 0.25 * static_cast<double>(sample % 3));
}

template <class Policy, class Precision>
struct Model {
    template <class Group>
    using Layer = sk::Sharded<Group, Policy, Precision>;

    explicit Model(sk::Rank& rank, Policy policy = {}, sk::Packing packing = sk::Packing::aligned)
        : table(rank, "table", sk::Shapes<Table>{sk::shape<Table>(rows, 3U)}, {policy, packing, {}}),
          layers(linears(rank, policy, packing)),
          tail(rank, "tail", {}, {policy, packing, {}}) {
        groups().initialize([](std::string_view path, std::string_view name, std::uint64_t i) {
            return initial_value(number_of(path, name), i);
        });
    }

    auto groups() { return sk::Model{table, layers, tail}; }
    /// f(layer) for every group, in order.
    template <class F>
    void for_each_layer(F f) {
        f(table);
        for (auto& layer : layers) { f(layer); }
        f(tail);
    }

    /// f(layer, parameter, tensor number) for every tensor, in order.
    template <class F>
    void for_each_tensor(F f) {
        f(table, Table{}, std::size_t{0});
        for (std::size_t l = 0; l < layers.size(); ++l) {
            f(layers[l], Weight{}, 1 + 2 * l);
            f(layers[l], Bias{}, 2 + 2 * l);
        }
        f(tail, Gain{}, std::size_t{7});
        f(tail, Shift{}, std::size_t{8});
        f(tail, Temperature{}, std::size_t{9});
    }

    /// Every parameter in full. Collective.
    std::vector<std::vector<double>> read() {
        std::vector<std::vector<double>> values(tensors.size());
        for_each_tensor([&](auto& layer, auto parameter, std::size_t tensor) {
            values[tensor].resize(tensors[tensor].numel);
            layer.read_full(parameter, std::span(values[tensor]));
        });
        return values;
    }

    Layer<Table> table;
    std::vector<Layer<Linear>> layers;
    Layer<Tail> tail;

  private:
    static std::vector<Layer<Linear>> linears(sk::Rank& rank, Policy policy, sk::Packing packing) {
        std::vector<Layer<Linear>> made;
        for (const char* path : {"layers.0", "layers.1", "layers.2"}) {
            made.emplace_back(rank, path,
                              sk::Shapes<Linear>{sk::shape<Weight>(outputs, inputs), sk::shape<Bias>(outputs)},
                              typename Layer<Linear>::Options{policy, packing, {}});
        }
        return made;
    }
};

}  // namespace toy SHARDKIT_BUILD
