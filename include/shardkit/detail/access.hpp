// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace shardkit::detail {

/// Gives the library access to private members of its public objects, across rooms. Every function calls a private
/// member of a class that declares Access a friend.
struct Access {
    template <class T, class... Arguments>
    static T make(Arguments&&... arguments) {
        return T(std::forward<Arguments>(arguments)...);
    }
    /// Returns the state of a Sharded. @throws UsageError when it was moved from
    template <class Layer, class... Location>
    static auto& state(const Layer& layer, const Location&... where) {
        return layer.live({where...});
    }
    /// Ends a gradient handle and returns its state; null when it was added before.
    template <class Handle>
    static auto* release(Handle& handle) noexcept {
        return handle.release();
    }
    /// Hands over the step of an accumulation.
    template <class Accumulation, class Location>
    static auto finish(Accumulation&& accumulation, Location where) {
        return std::forward<Accumulation>(accumulation).finish(where);
    }
    /// Returns an accumulation's link to the optimizer that updates its groups in the backward pass.
    template <class Accumulation>
    static auto& backward(Accumulation& accumulation) noexcept {
        return accumulation.backward_;
    }
    /// Returns the groups of an accumulation.
    template <class Accumulation, class Location>
    static const auto& groups(const Accumulation& accumulation, Location where) {
        return accumulation.groups(where);
    }
    /// Binds a LossScale to a model.
    template <class Scale, class Model, class Location>
    static void bind(Scale& scale, const Model& model, Location where) {
        scale.bind(model, where);
    }
    /// Counts a step that uses a LossScale.
    template <class Scale, class Location>
    static auto use(Scale& scale, Location where) {
        return scale.use(where);
    }
    /// Returns the loss scale of a LossScale or of reduced gradients, in engine memory, to be adapted.
    template <class Scaled>
    static auto* loss_scale(const Scaled& scaled) noexcept {
        return scaled.loss_scale();
    }
    /// Checks that `verb` may read the reduced gradients of a group.
    template <class Reduced, class Group, class Verb, class Location>
    static void require(const Reduced& reduced, const Group& group, Verb verb, Location where) {
        reduced.require(group, verb, where);
    }
    /// Returns the factor that turns sums in memory into gradients.
    template <class Reduced, class Rank>
    static double scale(const Reduced& reduced, Rank& rank) {
        return reduced.scale(rank);
    }
    /// Returns the statements of a rank about reduced gradients.
    template <class Reduced>
    static const auto& stated(const Reduced& reduced) noexcept {
        return reduced.stated_;
    }
    /// Returns the groups of a model, in order, for a loop over detail::Group&.
    template <class Groups, class Location>
    static auto each(const Groups& groups, Location where) {
        return groups.each(where);
    }
    /// The optimizers of which one consists; what one of these holds of each group that it updates, how far these
    /// updates are, and its hyper-parameters: see OptimizerFrame.
    template <class Optimizer>
    static auto parts(Optimizer& optimizer) {
        return optimizer.parts();
    }
    template <class Optimizer, class Location>
    static auto held(Optimizer& optimizer, Location where) {
        return optimizer.held(where);
    }
    template <class Optimizer, class Location>
    static auto progress(Optimizer& optimizer, Location where) {
        return optimizer.progress(where);
    }
    template <class Optimizer, class Progress, class Change, class Location>
    static void set_progress(Optimizer& optimizer, const Progress& of_groups, Change change, Location where) {
        optimizer.set_progress(of_groups, change, where);
    }
    template <class Optimizer, class Location>
    static auto hyper_parameters(Optimizer& optimizer, Location where) {
        return optimizer.hyper_parameters(where);
    }
    /// f(group, memory) for each state of elements that an optimizer's parts hold.
    template <class Optimizer, class F, class Location>
    static void for_each_state(Optimizer& optimizer, const F& f, Location where) {
        for (auto* const part : optimizer.parts()) {
            for (const auto& of : part->held(where)) {
                for (const auto& each : of.held) {
                    if (each.shape.rows == 0) { f(*of.group, each); }
                }
            }
        }
    }
    /// Restores the numbers of a LossScale.
    template <class Scale, class Value>
    static void restore(Scale& scale, Value value, std::uint32_t clean_steps, std::uint32_t overflows) {
        scale.restore(value, clean_steps, overflows);
    }
    /// Returns the numbers of a LossScale after the steps that were given to the stream.
    template <class Scale, class Location>
    static auto now(const Scale& scale, Location where) {
        return scale.now(where);
    }
    /// Returns the current state of what a checkpoint::State refers to.
    template <class State, class Location>
    static auto capture(const State& state, Location where) {
        return state.capture(where);
    }
    /// Returns how often loads have given a checkpoint::State's parameters their values, all of them.
    template <class State, class Location>
    static std::uint64_t version(const State& state, Location where) {
        return state.version(where);
    }
    /// Throws when an optimizer cannot take the loaded numbers, before anything is loaded.
    template <class State, class Numbers, class Location>
    static void check_numbers(const State& state, const Numbers& numbers, Location where) {
        state.check_numbers(numbers, where);
    }
    /// Restores the progress of optimizers, and a loss scale.
    template <class State, class Numbers, class Location>
    static void restore_numbers(const State& state, const Numbers& numbers, Location where) {
        state.restore_numbers(numbers, where);
    }
    /// Returns what a ReshardPlan holds.
    template <class Plan>
    static const auto& planned(const Plan& plan) noexcept {
        return plan.planned_;
    }
    /// Returns whether a Sharded or a model's groups were moved to another object.
    static bool moved_from(const auto& object) noexcept {
        if constexpr (requires { object.list_; }) {
            return object.list_ == nullptr;
        } else {
            return !object.state_;
        }
    }
    /// Returns the paths of the existing groups that were made with a rank.
    template <class Rank>
    static auto& living(Rank& rank) noexcept {
        return rank.resources_->living;
    }
    /// Returns the pools of slots that a rank's groups share.
    template <class Rank>
    static auto& pools(Rank& rank) noexcept {
        return rank.resources_->pools;
    }
};

}  // namespace shardkit::detail
