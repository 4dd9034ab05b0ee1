// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/step/reduce.hpp>

#include "unit/sharded/chosen.hpp"
#include "unit/sharded/toy_model.hpp"

namespace toy SHARDKIT_BUILD {

using Flat = sk::DeviceMesh<sk::dynamic>;

template <class Policy, class Precision = sk::Precision<double>>
using LinearLayer = sk::Sharded<Linear, Policy, Precision>;

inline sk::Shapes<Linear> linear_shapes() { return {sk::shape<Weight>(outputs, inputs), sk::shape<Bias>(outputs)}; }

/// Weight i is i, bias i is 100 + i: exact in every element type.
template <class Layer>
void number(Layer& layer) {
    layer.initialize([](std::string_view, std::string_view name, std::uint64_t i) {
        return static_cast<double>(i) + (name == "bias" ? 100 : 0);
    });
}

/// A layer of 7x5 weights and 7 biases, numbered; of one type whatever the policy.
template <class Policy, class Precision = sk::Precision<double>, class Rank>
auto linear_layer(Rank& rank, std::string path = "layer", const Policy& policy = {}) {
    const auto run_time = chosen(policy);
    LinearLayer<std::remove_const_t<decltype(run_time)>, Precision> layer(rank, std::move(path), linear_shapes(),
                                                                          {run_time, {}, {}});
    number(layer);
    return layer;
}

/// Adds factor * (i + 1) to every element i of both gradients.
template <class Handle>
void fill(const Handle& handle, double factor) {
    const auto add = [&](auto view) {
        using T = std::remove_cvref_t<decltype(view[0])>;
        for (std::size_t i = 0; i < view.size(); ++i) {
            const auto more = static_cast<sk::Arithmetic<T>>(factor * static_cast<double>(i + 1));
            view[i] = static_cast<T>(static_cast<sk::Arithmetic<T>>(view[i]) + more);
        }
    };
    add(handle[Weight{}]);
    add(handle[Bias{}]);
}

/// One microbatch of `layer`: gradient i is factor * (i + 1).
template <class Accumulation, class Layer>
void add(Accumulation& accumulation, Layer& layer, double factor) {
    auto handle = accumulation.gradients(layer);
    fill(handle, factor);
    accumulation.add(std::move(handle));
}

/// The number that `verb` was called on this rank since the log was last cleared.
template <class Rank>
std::uint64_t calls(Rank& rank, sk::Verb verb) {
    return rank.traffic().total(verb).calls;
}

}  // namespace toy SHARDKIT_BUILD
