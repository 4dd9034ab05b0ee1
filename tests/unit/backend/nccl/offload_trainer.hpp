// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "captured_step.hpp"
#include "paced_ranks.hpp"

/// A trainer of groups whose states lie on the device or in pinned host memory, and all bits that it trains.
namespace offload_trainer {

namespace sk = shardkit;
using standin::Pace;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

// Several pieces of the smallest slots for a rank, whose last one is none; parameters that begin inside of pieces;
// fewer elements than ranks.
template <class T>
struct Weight : sk::Param<"weight", T, 263, 61> {};
template <class T>
struct Bias : sk::Param<"bias", T, 61> {};
template <class T>
struct Scale : sk::Param<"scale", T, 1> {};
template <class T>
struct Group {
    using type = sk::Params<Weight<T>, Bias<T>, Scale<T>>;
};

/// What a run is, beside where its states lie.
struct Run {
    std::size_t ranks = 2;
    sk::DynamicPolicy policy{sk::FullShard{}};
    sk::MasterWeights master = sk::MasterWeights::kept;
    std::optional<sk::StochasticRounding> rounding{};
    bool in_backward = false;
    bool loss_scale = false;  ///< and an overflow in step 1
    bool frozen_bias = false;
    bool freezes_a_layer = false;
    bool skips = false;     ///< a layer in step 1
    bool mixed = false;     ///< every other layer lies on the device in any case
    bool captured = false;  ///< steps from the second one on are launches of a graph
    std::size_t steps = 4;
};
/// When each of a rank's streams works; its reductions as its gathers.
struct Paces {
    Pace compute;
    Pace communication;
    Pace copies;
};
inline constexpr Paces all_paces[] = {
    {Pace::lazy, Pace::lazy, Pace::lazy},   {Pace::lazy, Pace::lazy, Pace::eager},
    {Pace::lazy, Pace::eager, Pace::lazy},  {Pace::lazy, Pace::eager, Pace::eager},
    {Pace::eager, Pace::lazy, Pace::lazy},  {Pace::eager, Pace::lazy, Pace::eager},
    {Pace::eager, Pace::eager, Pace::lazy}, {Pace::eager, Pace::eager, Pace::eager}};

/// A gradient that differs from step to step and from layer to layer, and adds up exactly over ranks.
template <class T>
struct GiveGradient {
    T* to;
    std::size_t count;
    std::size_t seed;
    const sk::LossScaleState* scale;
    bool overflows;

    void operator()() const {
        const double factor = scale == nullptr ? 1 : scale->value();
        for (std::size_t i = 0; i < count; ++i) {
            const auto wave = static_cast<double>((i * 7 + seed * 13) % 32) - 15.5;
            to[i] = static_cast<T>(static_cast<float>(wave * factor / 64));
        }
        if (overflows) { to[count / 2] = static_cast<T>(INFINITY); }
    }
};
/// Values that an update moves visibly, for a kernel.
struct FirstValue {
    constexpr double operator()(std::uint64_t i) const { return static_cast<double>(i % 37) / 16 - 1; }
};

template <class T, sk::StateFormat Format>
struct Trainer {
    using Params = typename Group<T>::type;
    using Layer = sk::Sharded<Params, sk::DynamicPolicy>;
    using Optimizer = sk::AdamW;

    Trainer(sk::Rank& rank, const Run& run, sk::Offload offload) : run_(run) {
        for (std::size_t l = 0; l < 3; ++l) {
            typename Layer::Options options{run.policy};
            options.master = run.master;
            options.stochastic_rounding = run.rounding;
            options.offload = run.mixed && l % 2 == 0 ? sk::Offload::none : offload;
            if (run.in_backward) { options.gradient_release = sk::GradientRelease::at_update; }
            if (run.frozen_bias) { options.frozen = Params::template mask<Bias<T>>(); }
            if (run.freezes_a_layer && l == 1) { options.frozen = Params::all(); }
            layers.emplace_back(rank, "layers." + std::to_string(l), sk::Shapes<Params>{}, options);
        }
        initialize();
        model.emplace(layers);
        optimizer.emplace(*model, sk::states_in<Format>, sk::AdamWOptions{.learning_rate = 0.0625});
        state.emplace(*model, *optimizer);
        loss_scale.emplace(rank, sk::LossScaleOptions{.initial = 4, .growth_interval = 1});
    }
    void initialize() {
        for (Layer& layer : layers) {
            layer.initialize([](auto, auto) { return FirstValue{}; });
        }
    }
    void step(std::size_t number) {
        auto& rank = layers.front().rank();
        const auto stream = rank.compute_stream();
        sk::Accumulation accumulation{*model};
        if (run_.in_backward) { optimizer->step_in_backward(accumulation); }
        for (std::size_t l = layers.size(); l-- > 0;) {
            if (run_.freezes_a_layer && l == 1) { continue; }
            if (run_.skips && l == 1 && number == 1) {
                accumulation.skip(layers[l]);
                continue;
            }
            auto handle = accumulation.gradients(layers[l]);
            for (std::size_t p = 0; p < Params::count; ++p) {
                auto view = handle.view(p);
                const bool overflows = run_.loss_scale && number == 1 && l == 2 && p == 0;
                host_functions::LaunchedStream(stream).submit(
                    GiveGradient<T>{view.data(), view.size(), number + l + p,
                                    run_.loss_scale ? loss_scale->data() : nullptr, overflows});
            }
            accumulation.add(std::move(handle));
        }
        if (run_.in_backward) {
            optimizer->step(std::move(accumulation));
        } else {
            sk::Optimizer& its = stepped_by != nullptr ? *stepped_by : *optimizer;
            its.step(std::move(accumulation),
                     {.max_norm = 3, .loss_scale = run_.loss_scale ? &*loss_scale : nullptr});
        }
    }
    /// The bits of all that is trained, the states as the host finds them in shards().
    std::vector<std::uint64_t> bits() {
        std::vector<std::uint64_t> all;
        auto& rank = layers.front().rank();
        for (auto& layer : layers) {
            const auto window = layer.unshard();
            for (std::size_t p = 0; p < Params::count; ++p) {
                std::vector<T> values(window.view(p).size());
                sk::host::AnyKernels::copy_out(rank.compute_stream(),
                                               std::span<const T>(window.view(p).data(), values.size()),
                                               std::span<T>(values));
                for (const T value : values) {
                    all.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
                }
            }
            sk::read_shards(layer, [&](const auto& run) {
                using Value = std::remove_cv_t<typename decltype(run.values)::element_type>;
                std::vector<Value> values(run.values.size());
                const auto to = std::span<Value>(values);
                sk::host::AnyKernels::copy_out(rank.compute_stream(), std::span<const Value>(run.values), to);
                for (const Value value : values) {
                    all.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
                }
            });
        }
        rank.synchronize();
        for (const sk::ShardInfo& info : optimizer->shards()) {
            const auto* const bytes = static_cast<const unsigned char*>(info.data);
            for (std::size_t i = 0; i < info.local.size() * sk::size_of(info.type); ++i) { all.push_back(bytes[i]); }
        }
        all.push_back(optimizer->steps(layers.front()));
        all.push_back(std::bit_cast<std::uint64_t>(loss_scale->value()));
        return all;
    }

    Run run_;
    sk::Optimizer* stepped_by = nullptr;  // in the place of `optimizer`, where it is not null
    std::deque<Layer> layers;
    std::optional<sk::Model> model;
    std::optional<Optimizer> optimizer;
    std::optional<sk::checkpoint::State> state;
    std::optional<sk::LossScale> loss_scale;
};

/// f(rank, streams) on every rank, with the smallest slots and these paces.
template <class F>
std::string on_ranks(std::size_t ranks, Paces paces, const F& f) {
    const sk::RankOptions options{.offload_slot_bytes = sk::least_offload_slot_bytes};
    return paced_ranks::run(Mesh(ranks, 1, 1), {paces.compute, paces.communication, paces.communication}, options,
                            [&](auto& rank, const auto& streams) {
                                // Half of the ranks store at the fetches' pace, the others at the other one.
                                const Pace other = paces.copies == Pace::lazy ? Pace::eager : Pace::lazy;
                                const Pace back = rank.rank() % 2 == 0 ? paces.copies : other;
                                const auto pace = [&](sk::engine::LinkWay way, Pace its) {
                                    standin::set_pace(sk::gpu::TimelineRef(rank.world().copy_stream(way)).native(),
                                                      its);
                                };
                                pace(sk::engine::LinkWay::to_device, paces.copies);
                                pace(sk::engine::LinkWay::to_host, back);
                                standin::set_pace(sk::gpu::TimelineRef(rank.world().host_stream()).native(), other);
                                f(rank, streams);
                            });
}

/// The bits of every rank; `error`: what went wrong, empty if nothing.
template <class T, sk::StateFormat Format>
std::vector<std::vector<std::uint64_t>> trained(const Run& run, sk::Offload offload, Paces paces,
                                                std::string& error) {
    std::vector<std::vector<std::uint64_t>> bits(run.ranks);
    error = on_ranks(run.ranks, paces, [&](auto& rank, const auto& streams) {
        Trainer<T, Format> trainer(rank, run, offload);
        if (run.captured) {
            trainer.step(0);
            const step_trainer::CapturedStep graph(streams, [&] { trainer.step(1); });
            for (std::size_t s = 1; s < run.steps; ++s) { graph.launch(); }
            trainer.step(run.steps);
            bits[rank.rank()] = trainer.bits();
            return;
        }
        for (std::size_t s = 0; s < run.steps; ++s) {
            if (s == 2) { trainer.initialize(); }  // a kernel writes masters while nobody waits
            trainer.step(s);
        }
        bits[rank.rank()] = trainer.bits();
    });
    return bits;
}

}  // namespace offload_trainer
