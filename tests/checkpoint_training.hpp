// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "files_in_cache.hpp"

/// A state with all that a checkpoint may hold, of any element type, on any engine, mesh and policy.
namespace checkpoint_training {

namespace sk = shardkit;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

// Of 8 ranks some have nothing of "two" and "fixed", or padding alone; tp of 2, 3, 5 and 8 splits the first three,
// into runs longer and shorter than a page.
template <class T>
struct Rows : sk::Param<"rows", T, 120, 9>, sk::tp::Split<0> {};
template <class T>
struct Narrow : sk::Param<"narrow", T, 7, 120>, sk::tp::Split<1> {};
template <class T>
struct Wide : sk::Param<"wide", T, 2, 24000>, sk::tp::Split<1> {};
template <class T>
struct Two : sk::Param<"two", T, 2> {};
template <class T>
struct Tied : sk::Alias<"tied", Two<T>> {};
template <class T>
struct Fixed : sk::Param<"fixed", T, 7>, sk::Frozen {};
template <class T>
using Block = sk::Params<Rows<T>, Narrow<T>, Wide<T>, Two<T>, Tied<T>, Fixed<T>>;
template <class T>
struct Alone : sk::Param<"alone", T, 1> {};

using files_in_cache::InCache;

/// Optimizer::make(model), and whether there is a loss scale.
struct WithAdamW {
    static auto make(const auto& model) { return sk::AdamW{model}; }
    static constexpr bool scales = true;
};
struct WithPlainSgd {
    static auto make(const auto& model) { return sk::SGD{model}; }
    static constexpr bool scales = false;
};

template <class T, class Optimizer>
struct Training {
    using Layer = sk::Sharded<Block<T>, sk::DynamicPolicy>;
    using Listed = sk::Sharded<sk::TensorList<T>, sk::DynamicPolicy>;
    using Skipped = sk::Sharded<sk::Params<Alone<T>>, sk::DynamicPolicy>;

    Training(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : layer(rank, "layer", {}, {policy}),
          listed(rank, "listed", sk::TensorList<T>{{"a", {3, 5}}, {"b", {11}}}, {policy}),
          skipped(rank, "skipped", {}, {policy}),
          groups(layer, listed, skipped),
          optimizer(Optimizer::make(groups)),
          loss_scale(rank, {.initial = 32}),
          state(make_state()) {}
    auto make_state() {
        if constexpr (Optimizer::scales) {
            return sk::checkpoint::State{groups, optimizer, loss_scale};
        } else {
            return sk::checkpoint::State{groups, optimizer};
        }
    }
    /// One rank's: values that all differ, and a step.
    void begin() {
        const auto values = [](std::string_view, std::string_view name, std::uint64_t i) {
            return static_cast<double>(i % 8191) / 64 + static_cast<double>(name.size());
        };
        layer.initialize(values);
        listed.initialize(values);
        skipped.initialize(values);
        sk::Accumulation accumulation{groups};
        const auto add = [&](auto& group) {
            auto gradients = accumulation.gradients(group);
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = T(static_cast<float>(i % 5 + 1)); }
            }
            accumulation.add(std::move(gradients));
        };
        add(layer);
        add(listed);
        accumulation.skip(skipped);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    }

    /// That this rank's window has every element of what `model` holds, to the bit.
    void require_values(const std::map<std::string, std::vector<T>>& model) {
        const auto require = [&](auto& group) {
            const auto window = group.unshard();
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                const auto& parameter = group.parameters()[p];
                const std::string name = group.path() + "." + std::string(parameter.name);
                const auto view = window.view(p);
                const std::vector<T>& whole = model.at(name);
                std::vector<T> held(view.size());
                sk::host::AnyKernels::copy_out(group.rank().compute_stream(),
                                               std::span<const T>(view.data(), view.size()), std::span<T>(held));
                parameter.part.for_each_run(0, held.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
                    if (at + run > whole.size() ||
                        std::memcmp(held.data() + i, whole.data() + at, run * sizeof(T)) != 0) {
                        throw std::logic_error(name + " has other values than were saved");
                    }
                });
            }
        };
        require(layer);
        require(listed);
        require(skipped);
    }

    Layer layer;
    Listed listed;
    Skipped skipped;
    sk::Model groups;
    decltype(Optimizer::make(std::declval<sk::Model&>())) optimizer;
    sk::LossScale loss_scale;
    sk::checkpoint::State state;
};

/// All meshes of so many ranks.
inline std::vector<Mesh> meshes(std::size_t world) {
    std::vector<Mesh> all;
    for (std::size_t dp = 1; dp <= world; ++dp) {
        for (std::size_t tp = 1; tp <= world / dp; ++tp) {
            if (world % (dp * tp) == 0) { all.emplace_back(dp, tp, world / (dp * tp)); }
        }
    }
    return all;
}

/// Of numbers in a Case: across_groups + N is over N ranks, each of whose shards is cut across the groups, and cp.
inline constexpr std::size_t across_groups = 1000;
/// A policy, and over how many consecutive ranks of dp it shards what it keeps between steps: of the parameters, and
/// of masters and states. 0: over all.
struct Case {
    sk::DynamicPolicy policy;
    std::size_t parameters, states;
};
/// All policies: each is tested on every mesh that it fits.
inline std::vector<Case> cases() {
    return {
        Case{sk::DynamicPolicy(sk::NoShard{}), 1, 1},         //
        Case{sk::DynamicPolicy(sk::ShardOptimizer{}), 0, 0},  //
        Case{sk::DynamicPolicy(sk::ShardGradOp{}), 0, 0},     //
        Case{sk::DynamicPolicy(sk::FullShard{}), 0, 0},       //
        Case{sk::DynamicPolicy(sk::HybridShard<2>{}), 2, 2},
        Case{sk::DynamicPolicy(sk::HybridOptimizer<2>{}), across_groups + 2, across_groups + 2},
    };
}
inline std::vector<Case> cases(const Mesh& mesh) {
    std::vector<Case> all = cases();
    std::erase_if(all, [&](const Case& each) {
        const auto divides = [&](std::size_t ranks) {
            return ranks == 0 || mesh.dp() % (ranks % across_groups) == 0;
        };
        return !divides(each.parameters) || !divides(each.states);
    });
    return all;
}
inline std::vector<sk::DynamicPolicy> policies(const Mesh& mesh) {
    std::vector<sk::DynamicPolicy> all;
    for (const Case& each : cases(mesh)) { all.push_back(each.policy); }
    if (mesh.dp() % 2 == 0) { all.emplace_back(sk::SecondaryShard<2>{}); }
    return all;
}

/// Saves what one rank has begun with as the first step in `folder`; the parameters' values by name.
template <class T, class Optimizer>
std::map<std::string, std::vector<T>> save_first(const std::string& folder, sk::checkpoint::FileCalls& files) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training<T, Optimizer> training(rank, sk::DynamicPolicy(sk::NoShard{}));
        training.begin();
        sk::checkpoint::save(rank, folder, 1, training.state, {.files = &files});
    });
    std::map<std::string, std::vector<T>> values;
    const sk::safetensors::File model(folder + "/step-00000001/model.safetensors");
    for (const auto& tensor : model.tensors()) { values[tensor.name] = model.template read<T>(tensor.name); }
    return values;
}

/// Loads the step in `from`, and saves what it has then in `to`.
template <class T, class Optimizer, class Rank>
void load_and_save(Rank& rank, const sk::DynamicPolicy& policy, const std::map<std::string, std::vector<T>>& values,
                   const std::string& from, const std::string& to, sk::checkpoint::FileCalls& files) {
    Training<T, Optimizer> training(rank, policy);
    sk::checkpoint::load(rank, from + "/step-00000001", training.state, {.files = &files});
    training.require_values(values);
    sk::checkpoint::save(rank, to, 1, training.state, {.files = &files});
}

}  // namespace checkpoint_training
