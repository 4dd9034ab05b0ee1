// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/summon_full_params.hpp>

/// Work that one rank does alone between two steps, on any engine; the checks of a rank as a list of what is wrong,
/// so that ranks of any kind can report it.
namespace one_rank {

namespace sk = shardkit;

inline constexpr std::size_t layers = 5;  // alike, and more than there are slots
inline constexpr std::size_t elements = 37;

template <class Policy>
sk::DynamicPolicy policy() {
    return sk::DynamicPolicy(Policy{});
}
inline const std::vector<sk::DynamicPolicy> policies{policy<sk::NoShard>(), policy<sk::ShardOptimizer>(),
                                                     policy<sk::ShardGradOp>(), policy<sk::FullShard>()};

using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;

/// One step with a gradient of one everywhere: every element falls by one.
template <class Model, class Layers, class Optimizer>
void step(const Model& model, Layers& groups, Optimizer& optimizer) {
    using Kernels = sk::host::AnyKernels;
    sk::Accumulation accumulation{model};
    for (auto& layer : groups) {
        auto handle = accumulation.gradients(layer);
        const auto view = handle.view("w");
        Kernels::fill(layer.rank().compute_stream(), std::span<float>(view.data(), view.size()), 1.0F);
        accumulation.add(std::move(handle));
    }
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}

/// The values that a window shows.
template <class AnyLayer>
std::vector<float> values(AnyLayer& layer, sk::Gathers gathers) {
    const auto window = layer.unshard(gathers);
    const auto view = window.view("w");
    std::vector<float> read(view.size());
    sk::host::AnyKernels::copy_out(layer.rank().compute_stream(), std::span<const float>(view.data(), view.size()),
                                   std::span<float>(read));
    return read;
}

template <class Rank>
std::vector<std::string> failures(Rank& rank, const sk::DynamicPolicy& policy) {
    std::vector<std::string> wrong;
    const auto check = [&](bool right, const std::string& what) {
        if (!right) { wrong.push_back(std::string(policy.name()) + ": " + what); }
    };
    std::vector<Layer> groups;
    for (std::size_t i = 0; i < layers; ++i) {
        groups.emplace_back(rank, "layers." + std::to_string(i), sk::TensorList<float>{{"w", {elements}}},
                            typename Layer::Options{policy});
        groups.back().initialize([&](auto, auto, std::uint64_t k) { return static_cast<double>(100 * i + k); });
    }
    sk::Model model{groups};
    sk::SGD optimizer{model, {.learning_rate = 1}};
    const auto right = [&](std::size_t i, float steps) {
        std::vector<float> expected(elements);
        for (std::size_t k = 0; k < elements; ++k) { expected[k] = static_cast<float>(100 * i + k) - steps; }
        return values(groups[i], sk::Gathers::never) == expected;
    };
    for (const float steps : {1.0F, 2.0F}) {
        step(model, groups, optimizer);
        const bool replicates = policy.values(1).optimizer == sk::Placement::replicated;
        try {
            check(right(0, steps) && replicates, "a window without a gather was opened");
        } catch (const sk::UsageError& error) {
            check(!replicates, error.what());
            check(std::string_view(error.what())
                          .find("'layers.0': this window would gather, and Gathers::never was "
                                "given; call summon_full_params") == 0,
                  error.what());
        }
        {
            const auto full = sk::summon_full_params(model);
            if (rank.rank() == 0) {  // alone, in an order of its own, and all at once
                std::vector<decltype(groups[0].unshard())> open;
                for (std::size_t i = layers; i-- > 0;) {
                    check(right(i, steps), "wrong values in layer " + std::to_string(i));
                    open.push_back(groups[i].unshard(sk::Gathers::never));
                }
            }
            try {
                groups[0].initialize([](auto, auto, auto) { return 0.0; });
                check(false, "the parameters were overwritten under a window");
            } catch (const sk::UsageError&) {}
        }
    }
    return wrong;
}

}  // namespace one_rank
