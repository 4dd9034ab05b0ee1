// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace shardkit::detail {

/// The library's way to what public objects keep to themselves: verbs of one room reach the insides that another room
/// does not show to users. What is named here is a private member of every class that declares Access a friend.
struct Access {
    template <class T, class... Arguments>
    static T make(Arguments&&... arguments) {
        return T(std::forward<Arguments>(arguments)...);
    }
    /// What stands behind a Sharded. @throws UsageError when it was moved from
    template <class Layer, class... Location>
    static auto& state(const Layer& layer, const Location&... where) {
        return layer.live({where...});
    }
    /// Ends a gradient handle; null when it was added before.
    template <class Handle>
    static auto* release(Handle& handle) noexcept {
        return handle.release();
    }
    /// Gives away the step that an accumulation holds.
    template <class Accumulation, class Location>
    static auto finish(Accumulation&& accumulation, Location where) {
        return std::forward<Accumulation>(accumulation).finish(where);
    }
    /// The groups that an accumulation is over.
    template <class Accumulation, class Location>
    static const auto& groups(const Accumulation& accumulation, Location where) {
        return accumulation.groups(where);
    }
    /// Ties a LossScale to a model.
    template <class Scale, class Model, class Location>
    static void bind(Scale& scale, const Model& model, Location where) {
        scale.bind(model, where);
    }
    /// A LossScale in one more step.
    template <class Scale>
    static auto use(Scale& scale) noexcept {
        return scale.use();
    }
    /// The loss scale of a LossScale or of reduced gradients, to be adapted: engine memory.
    template <class Scaled>
    static auto* loss_scale(const Scaled& scaled) noexcept {
        return scaled.loss_scale();
    }
    /// What stands behind a layer whose reduced gradients `verb` reads.
    template <class Reduced, class Layer, class Verb, class Location>
    static auto& state_of(const Reduced& reduced, Layer& layer, Verb verb, Location where) {
        return reduced.state_of(layer, verb, where);
    }
    /// What sums in memory are multiplied by to be gradients.
    template <class Reduced, class Context>
    static double scale(const Reduced& reduced, Context& context) {
        return reduced.scale(context);
    }
    /// What a rank states of reduced gradients.
    template <class Reduced>
    static const auto& stated(const Reduced& reduced) noexcept {
        return reduced.stated_;
    }
    /// Calls f(detail::Group<Engine>&) for every group of a model, in order.
    template <class Groups, class F, class Location>
    static void walk(const Groups& groups, const F& f, Location where) {
        groups.walk(f, where);
    }
    /// Shows a checkpoint what an optimizer keeps between steps.
    template <class Optimizer, class Visitor, class Location>
    static void visit(Optimizer& optimizer, Visitor& visitor, Location where) {
        optimizer.visit(visitor, where);
    }
    /// Sets what a LossScale has learnt.
    template <class Scale, class Value>
    static void restore(Scale& scale, Value value, std::uint32_t clean_steps, std::uint32_t overflows) {
        scale.restore(value, clean_steps, overflows);
    }
    /// The numbers of a LossScale, once the steps that were given are done.
    template <class Scale>
    static auto now(const Scale& scale) {
        return scale.now();
    }
    /// What a CheckpointState refers to, as it is.
    template <class State, class Location>
    static auto capture(const State& state, Location where) {
        return state.capture(where);
    }
    /// Sets how far an optimizer is, and a loss scale.
    template <class State, class Progress, class Scalars, class Location>
    static void restore_numbers(const State& state, const Progress& progress, const Scalars& scalars,
                                Location where) {
        state.restore(progress, scalars, where);
    }
    /// Says whether a Sharded or a model's groups were moved to another object.
    static bool moved_from(const auto& object) noexcept {
        if constexpr (requires { object.members_; }) {
            return object.members_ == nullptr;
        } else {
            return object.state_ == nullptr;
        }
    }
    /// Paths of the groups that were made with a context and live.
    template <class Context>
    static auto& living(Context& context) noexcept {
        return context.living_;
    }
    /// The slots that groups of a rank take turns in.
    template <class Context>
    static auto& pools(Context& context) noexcept {
        return context.pools_;
    }
};

}  // namespace shardkit::detail
