// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

// A trainer with every kind of group, whose results depend on every bit of every parameter.

namespace scheduled {

namespace sk = shardkit;

template <class T>
struct Weight : sk::Param<"weight", T, 30, 7> {};
template <class T>
struct Bias : sk::Param<"bias", T, 45> {};
template <class T>
struct Frozen : sk::Param<"frozen", T, 33> {
    static constexpr bool frozen = true;
};

struct Run {
    sk::DynamicPolicy policy;
    std::size_t microbatches = 1;
    std::size_t steps = 4;
    /// Frozen, tied, unused and skipped groups beside those that are just used.
    bool every_kind = false;
    bool norm = true;
};

/// An error planted in a step's program, at the backward pass of block 1.
enum class Planted {
    nothing,
    late_gather,
    early_close,
    forgotten_add,
    double_add,
    wrong_group,
    other_order,
    one_more,
    no_norm,
    zero_in_window,
    late_skip,
    two_handles,
    early_last,
    forgotten_group
};

using Groups = std::span<const sk::planner::GroupDescription>;
/// What a trainer's steps are to follow, made of what was recorded.
using Improve = sk::Schedule (*)(const sk::Schedule&, Groups);
inline sk::Schedule gathers_ahead(const sk::Schedule& s, Groups g) {
    return sk::schedule::gather_after_update(sk::schedule::prefetch(s, g, 1), g);
}
inline sk::Schedule some_stay_gathered(const sk::Schedule& s, Groups g) {
    return sk::schedule::prefetch(sk::schedule::keep_gathered(s, g, sk::schedule::peak(s, g) + sk::ByteCount(2000)),
                                  g, 2);
}
inline sk::Schedule all_overlaps(const sk::Schedule& s, Groups g) {
    const sk::Schedule overlapped = sk::schedule::overlap_reductions(sk::schedule::prefetch(s, g, 1), g);
    return sk::schedule::gather_after_update(overlapped, g);
}

/// Makes the trainer's first step, and lets the others follow what `improve` makes of it.
template <class Trainer>
[[nodiscard]] auto follow_first_step(Trainer& trainer, Improve improve) {
    const auto groups = sk::describe_groups(trainer.model());
    const sk::Schedule recorded = sk::schedule::record(trainer.model(), [&] { trainer.step(0); });
    return sk::schedule::follow(trainer.model(), improve(recorded, groups));
}

template <class Precision>
class Trainer {
  public:
    using T = typename Precision::Gather;
    template <class Group>
    using Layer = sk::Sharded<Group, sk::DynamicPolicy, Precision>;
    using Block = sk::Params<Weight<T>, Bias<T>>;

    Trainer(sk::Rank& rank, const Run& run)
        : run_(run),
          number_(rank.rank()),
          table(rank, "table", {}, {run.policy}),
          frozen(rank, "frozen", {}, {run.policy}) {
        blocks.reserve(3);
        for (int i = 0; i < 3; ++i) {
            blocks.emplace_back(rank, "blocks." + std::to_string(i), sk::Shapes<Block>{},
                                typename Layer<Block>::Options{run.policy});
        }
        for (const char* path : {"unused", "skipped"}) {
            others.emplace_back(rank, path, sk::Shapes<sk::Params<Bias<T>>>{},
                                typename Layer<sk::Params<Bias<T>>>::Options{run.policy});
        }
        model().initialize(
            [](auto path, auto, std::uint64_t i) { return std::sin(static_cast<double>(i + 3 * path.size())); });
        optimizer.emplace(model(), sk::SgdOptions{.learning_rate = 0.125});
    }

    void set_microbatches(std::size_t microbatches) { run_.microbatches = microbatches; }
    auto model() { return sk::Model{table, frozen, blocks, others}; }
    /// f(layer) for every group, in order.
    template <class F>
    void for_each_layer(const F& f) {
        f(table);
        f(frozen);
        for (auto& block : blocks) { f(block); }
        for (auto& other : others) { f(other); }
    }

    /// f sees the address of every window's parameters.
    void step(
        std::size_t number, Planted planted = Planted::nothing,
        const std::function<void(const void*)>& see = [](const void*) {}) {
        sk::Accumulation accumulation{model(), run_.microbatches};
        if (run_.every_kind) { accumulation.skip(others[1]); }
        for (std::size_t m = 0; m < run_.microbatches; ++m) {
            double activation = static_cast<double>(number_ + m + number);
            const auto forward = [&](auto& layer, auto parameter) {
                auto window = layer.unshard();
                see(window[parameter].data());
                for (const T value : window[parameter]) {
                    activation = std::sin(activation + static_cast<double>(static_cast<sk::Arithmetic<T>>(value)));
                }
                layer.reshard(std::move(window));
            };
            forward(table, Weight<T>{});
            if (run_.every_kind) {
                forward(frozen, Frozen<T>{});
                forward(others[1], Bias<T>{});  // though skipped
            }
            for (auto& block : blocks) { forward(block, Weight<T>{}); }
            const auto backward = [&](auto& layer, auto parameter, Planted here = Planted::nothing) {
                if (here == Planted::late_gather) { static_cast<void>(accumulation.gradients(layer)); }
                auto window = layer.unshard();
                see(window[parameter].data());
                std::vector<double> values;
                for (const T value : window[parameter]) {
                    values.push_back(static_cast<double>(static_cast<sk::Arithmetic<T>>(value)));
                }
                if (here == Planted::early_close) { layer.reshard(std::move(window)); }
                if (here == Planted::zero_in_window) { accumulation.add_zero(layer); }
                auto gradients = accumulation.gradients(layer);
                std::size_t i = 0;
                for (auto& gradient : gradients[parameter]) {
                    using G = std::remove_reference_t<decltype(gradient)>;
                    using A = sk::Arithmetic<G>;
                    gradient = static_cast<G>(static_cast<A>(gradient) +
                                              static_cast<A>(std::sin(activation + 3 * values[i++])));
                }
                if (here != Planted::early_close) { layer.reshard(std::move(window)); }
                if (here == Planted::forgotten_add) { return; }
                if (here == Planted::two_handles) { static_cast<void>(accumulation.gradients(layer)); }
                if (here == Planted::early_last) { accumulation.set_microbatches(layer, m + 1); }
                accumulation.add(std::move(gradients));
                if (here == Planted::double_add) { accumulation.add_zero(layer); }
                if (here == Planted::late_skip) { accumulation.skip(layer); }
            };
            if (run_.every_kind) { forward(table, Weight<T>{}); }  // tied: once more as the head
            if (planted == Planted::other_order) {
                backward(blocks[1], Weight<T>{});
                backward(blocks[2], Weight<T>{});
            } else {
                backward(blocks[2], Weight<T>{});
                backward(planted == Planted::wrong_group ? blocks[0] : blocks[1], Weight<T>{}, planted);
            }
            if (planted == Planted::one_more) { forward(blocks[0], Weight<T>{}); }
            backward(blocks[0], Weight<T>{});
            backward(table, Weight<T>{});
            if (planted != Planted::forgotten_group) { accumulation.add_zero(others[0]); }
            if (!run_.every_kind) { accumulation.add_zero(others[1]); }
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        if (run_.norm && planted != Planted::no_norm) {
            const auto norm = sk::global_norm(reduced);
            norms.push_back(norm.value());
            optimizer->step(std::move(reduced), sk::clip(norm, 1.0));
        } else {
            optimizer->step(std::move(reduced));
        }
    }

    /// The sum over all windows between two steps.
    double evaluate() {
        double sum = 0;
        for_each_layer([&](auto& layer) {
            auto window = layer.unshard();
            for (const T value : window.view(0)) {
                sum += static_cast<double>(static_cast<sk::Arithmetic<T>>(value));
            }
        });
        return sum;
    }

    std::vector<double> values() {
        std::vector<double> all = norms;
        for_each_layer([&](auto& layer) {
            layer.for_each_parameter([&](const auto& parameter, std::size_t number) {
                std::vector<T> whole(parameter.shape.numel());
                layer.read_full(number, whole);
                for (const T value : whole) {
                    all.push_back(static_cast<double>(static_cast<sk::Arithmetic<T>>(value)));
                }
            });
        });
        return all;
    }

  private:
    Run run_;
    std::size_t number_;

  public:
    Layer<sk::Params<Weight<T>>> table;
    Layer<sk::Params<Frozen<T>>> frozen;
    std::vector<Layer<Block>> blocks;
    std::vector<Layer<sk::Params<Bias<T>>>> others;
    std::optional<sk::SGD> optimizer;
    std::vector<double> norms;
};

}  // namespace scheduled
