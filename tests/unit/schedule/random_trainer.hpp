// SPDX-License-Identifier: Apache-2.0
// A trainer that follows a plan made at random, with a schedule or without.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include "unit/schedule/random_plan.hpp"

namespace random_trainer {

template <class T>
struct Elements : sk::Param<"elements", T, sk::dynamic> {};

inline sk::Schedule improved(sk::Schedule s, std::span<const sk::planner::GroupDescription> groups,
                             std::size_t passes) {
    if ((passes & 1) != 0) {
        s = sk::schedule::keep_gathered(s, groups, sk::schedule::peak(s, groups) + sk::ByteCount(3000));
    }
    if ((passes & 2) != 0) { s = sk::schedule::prefetch(s, groups, 1 + passes % 3); }
    if ((passes & 4) != 0) { s = sk::schedule::overlap_reductions(s, groups); }
    if ((passes & 8) != 0) { s = sk::schedule::gather_after_update(s, groups); }
    if ((passes & 16) != 0) { s = sk::schedule::keep_gathered(s, groups, sk::schedule::peak(s, groups)); }
    return s;
}

/// What the program computes is given to the compute stream, where that takes functions.
template <class Precision>
class Trainer {
  public:
    using Layer = sk::Sharded<Elements<typename Precision::Gather>, sk::DynamicPolicy, Precision>;

    Trainer(sk::Rank& rank, const Plan& plan) : plan_(plan), rank_(rank) {
        layers_.reserve(sizes.size());
        for (const std::size_t numel : sizes) {
            layers_.emplace_back(rank, "layers." + std::to_string(layers_.size()),
                                 sk::Shapes<Group>{sk::shape<Group>(numel)}, typename Layer::Options{plan.policy});
        }
        initialize(0);
        optimizer_.emplace(model(), sk::AdamWOptions{.learning_rate = 0.125});
    }

    std::vector<double> run(bool follows) {
        std::vector<sk::Schedule> schedules;
        for (const Program& program : plan_.programs) {
            schedules.push_back(sk::schedule::record(model(), [&] { step(program, program.verbs.size()); }));
        }
        std::optional<sk::schedule::Following> following;
        if (follows) {
            const auto groups = sk::describe_groups(model());
            for (sk::Schedule& schedule : schedules) { schedule = improved(schedule, groups, plan_.passes); }
            following.emplace(sk::schedule::follow(model(), std::span<const sk::Schedule>(schedules)));
        }
        for (const Plan::Action& action : plan_.actions) {
            const Program& program = plan_.programs[action.program];
            switch (action.act) {
                case Plan::Act::step:
                case Plan::Act::half_a_step:
                    if (following) { following->choose(action.program); }
                    step(program, action.act == Plan::Act::step ? program.verbs.size() : action.number);
                    break;
                case Plan::Act::evaluate:
                    evaluate();
                    break;
                case Plan::Act::initialize:
                    initialize(action.number);
                    break;
                case Plan::Act::load:
                    layers_[1].load(Group{}, std::vector<Value>(sizes[1], static_cast<Value>(action.number)));
                    break;
            }
        }
        evaluate();
        following.reset();
        step(plan_.programs[0], plan_.programs[0].verbs.size());
        evaluate();
        rank_.synchronize();
        return std::move(seen_);
    }

  private:
    using Value = typename Precision::Gather;
    using Group = Elements<Value>;
    using Layers = std::vector<Layer>;
    using Asked = decltype(std::declval<Layer&>().begin_unshard());
    using Window = decltype(std::declval<Layer&>().unshard());
    using Gradients = decltype(std::declval<sk::Accumulation&>().gradients(std::declval<Layer&>()));

    auto model() { return sk::Model{layers_}; }
    template <class F>
    void compute(const F& f) {
        if constexpr (requires { rank_.compute_stream().submit(f); }) {
            rank_.compute_stream().submit(f);
        } else {
            f();
        }
    }
    void initialize(std::size_t number) {
        for (Layer& layer : layers_) {
            layer.initialize([&](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(number + i)); });
        }
    }
    /// Depends on every bit.
    void read(const Window& window) {
        const auto view = window[Group{}];
        compute([this, values = std::span<const Value>(view.data(), view.size())] {
            for (const Value value : values) {
                activation_ = std::sin(1.5 * activation_ + static_cast<double>(value));
            }
        });
    }
    void see() {
        compute([this] { seen_.push_back(activation_); });
    }
    void evaluate() {
        for (Layer& layer : layers_) { read(layer.unshard()); }
        see();
    }
    /// Its first verbs, and if these are all of them what comes behind.
    void step(const Program& program, std::size_t verbs) {
        compute([this] { before_ = activation_; });
        const auto groups = model();
        sk::Accumulation accumulation{groups, sk::until_reduced};
        std::vector<std::optional<Asked>> asked(program.windows);
        std::vector<std::optional<Window>> shown(program.windows);
        std::array<std::optional<Gradients>, sizes.size()> gradients;
        std::array<std::size_t, sizes.size()> added{};
        for (const Verb& verb : std::span(program.verbs).first(verbs)) {
            Layer& layer = layers_[verb.group];
            if (verb.last) { accumulation.set_microbatches(layer, added[verb.group] + 1); }
            switch (verb.kind) {
                case Kind::ask:
                    asked[verb.window].emplace(layer.begin_unshard());
                    break;
                case Kind::show:
                    shown[verb.window].emplace(std::move(*asked[verb.window]).wait());
                    asked[verb.window].reset();
                    read(*shown[verb.window]);
                    break;
                case Kind::end:
                    read(*shown[verb.window]);
                    layer.reshard(*std::exchange(shown[verb.window], std::nullopt));
                    break;
                case Kind::take:
                    gradients[verb.group].emplace(accumulation.gradients(layer));
                    break;
                case Kind::add: {
                    const auto view = (*gradients[verb.group])[Group{}];
                    using Gradient = typename Precision::Gradient;
                    compute([this, addends = std::span<Gradient>(view.data(), view.size())] {
                        double angle = activation_ + static_cast<double>(rank_.rank());
                        for (Gradient& each : addends) { each += static_cast<Gradient>(std::sin(angle += 0.7)); }
                    });
                    accumulation.add(*std::exchange(gradients[verb.group], std::nullopt));
                    ++added[verb.group];
                    break;
                }
                case Kind::add_zero:
                    accumulation.add_zero(layer);
                    ++added[verb.group];
                    break;
                case Kind::skip:
                    accumulation.skip(layer);
                    break;
            }
        }
        if (verbs < program.verbs.size()) {
            compute([this] { activation_ = before_; });
            return;
        }
        see();
        if (!program.trains) { return; }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        if (program.norm == Norm::none) {
            optimizer_->step(std::move(reduced));
            return;
        }
        const auto norm = sk::global_norm(reduced);
        if (program.norm == Norm::clips_and_shows) {
            compute([this, value = norm.value()] { seen_.push_back(value); });
        }
        optimizer_->step(std::move(reduced), sk::clip(norm, 1.0));
    }

    const Plan& plan_;
    sk::Rank& rank_;
    Layers layers_;
    std::optional<sk::AdamW> optimizer_;
    double activation_ = 0;
    double before_ = 0;
    std::vector<double> seen_;
};

}  // namespace random_trainer
