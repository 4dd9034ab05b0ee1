// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/core/until_reduced.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/step/gradients.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail::inline SHARDKIT_BUILD {

/// Holds the groups of a model for one training step: while it lives no second step can start; its end makes them
/// idle again, whether the step was completed or abandoned by an exception. Move-only.
template <class Engine>
class StepScope {
  public:
    /// `count`: microbatches of every group; 0: as many as are added until the step is reduced.
    /// @throws UsageError when one of the groups is in another step; none is touched then
    StepScope(const Groups<Engine>& groups, std::size_t count, SourceLocation where);
    StepScope(StepScope&& other) noexcept
        : groups_(std::exchange(other.groups_, std::nullopt)), number_(std::exchange(other.number_, 0)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        StepScope taken(std::move(other));
        std::swap(groups_, taken.groups_);
        std::swap(number_, taken.number_);
        return *this;
    }
    ~StepScope();  // NOLINT(bugprone-exception-escape): its groups live, so that walking them throws nothing

    bool live() const noexcept { return groups_.has_value(); }
    const Groups<Engine>& groups() const { return *groups_; }
    /// Tells this step from any other of the process; 0 once it was given away.
    std::uint64_t number() const noexcept { return number_; }

  private:
    /// The recorder or follower that is attached to all of the groups; null: none.
    static StepDirector* director_of(const Groups<Engine>& groups, SourceLocation where);

    std::optional<Groups<Engine>> groups_;
    std::uint64_t number_ = new_identity();
};

template <class Engine>
StepScope<Engine>::StepScope(const Groups<Engine>& groups, std::size_t count, SourceLocation where)
    : groups_(groups) {
    static_cast<void>(groups.context(where));
    StepDirector* const director = director_of(groups, where);
    std::size_t begun = 0;
    try {
        Access::walk(
            groups,
            [&](Group<Engine>& group) {
                group.begin_step(number_, count, where);
                ++begun;
            },
            where);
        if (director != nullptr) [[unlikely]] { director->begin_step(begun, where); }
    } catch (...) {
        Access::walk(
            groups,
            [&](Group<Engine>& group) {
                if (begun > 0) {
                    group.end_step();
                    --begun;
                }
            },
            where);
        throw;
    }
}

template <class Engine>
StepScope<Engine>::~StepScope() {
    if (!groups_) { return; }
    // Asked for here and not kept: a recorder ends when record returns, whether the step has ended or not. A group
    // cannot have ended: one that is in a step ends the program instead.
    StepDirector* director = nullptr;
    Access::walk(
        *groups_,
        [&](Group<Engine>& group) {
            group.end_step();
            director = group.directed().director();
        },
        SourceLocation{});
    if (director != nullptr) [[unlikely]] { director->end_step(); }
}

template <class Engine>
StepDirector* StepScope<Engine>::director_of(const Groups<Engine>& groups, SourceLocation where) {
    StepDirector* first = nullptr;
    std::size_t number = 0;
    Access::walk(
        groups,
        [&](Group<Engine>& group) {
            StepDirector* const its = group.directed().any();
            if (number++ == 0) { first = its; }
            if (its != first) {
                group.refuse_group(
                    where, "a schedule is followed, or a step recorded, for some of these groups and not for all");
            }
        },
        where);
    return first;
}

}  // namespace shardkit::detail::inline SHARDKIT_BUILD

namespace shardkit::inline SHARDKIT_BUILD {

/// The gradients of one step over a whole model, from the first microbatch to `reduce` or the optimizer's step.
/// Because it spans the model, no group can be forgotten in the norm or the update: a group that got no gradient is
/// an error unless `add_zero` or `skip` says that it is meant.
///     Accumulation accumulation{model, microbatches};
/// It knows which microbatch is the last one, so a group's reduction runs beside the rest of that backward pass.
/// Order:   `add` runs the policy's reductions, so every data rank adds the same groups in the same order.
template <class EngineType>
class Accumulation {
  public:
    using Engine = EngineType;

    /// `count`: microbatches, how often each group is added to before its gradients are complete.
    /// @throws std::invalid_argument for no microbatches; UsageError when another accumulation over one of the groups
    ///         has not ended
    template <std::integral Count = std::size_t>
    [[nodiscard]] explicit Accumulation(const Groups<Engine>& model, Count count = 1,
                                        SourceLocation where = SourceLocation::current())
        : scope_(model, count_of(count, where), where) {}
    /// The same where their number is not known yet: until `set_microbatches` says it, or `reduce` ends them.
    /// Reductions that a policy makes once per step begin then, and not beside the backward pass.
    [[nodiscard]] Accumulation(const Groups<Engine>& model, UntilReduced,
                               SourceLocation where = SourceLocation::current())
        : scope_(model, 0, where) {}

    /// Says how many microbatches the step has, once that is known. Groups that have them all are reduced here, in
    /// the model's order.
    /// Order:   collective over the data ranks for these
    /// @throws  std::invalid_argument for none; UsageError when a group has more of them already
    template <std::integral Count>
    void set_microbatches(Count count, SourceLocation where = SourceLocation::current()) {
        set_all(count_of(count, where), where);
    }
    /// The same of one group: for a layer that is added to more than once in a microbatch, or left out of some.
    template <class Layer, std::integral Count>
    void set_microbatches(Layer& layer, Count count, SourceLocation where = SourceLocation::current()) {
        detail::Group<Engine>& group = group_of(layer, "set_microbatches", where);
        const std::size_t number = count_of(count, where);
        check_number(group, number, where);
        set_number(group, number, where);
    }

    /// Hands out the gradients of one microbatch for `layer`; the backward pass adds to their zeroed (or, where the
    /// policy adds unreduced gradients, running) values.
    /// @throws UsageError when the last handle was not added, or the layer is frozen, finished or not the model's
    template <class Layer>
    [[nodiscard]] auto gradients(Layer& layer, SourceLocation where = SourceLocation::current()) {
        auto& state = group_of(layer, "gradients", where);
        state.take_gradients(where, "gradients");
        return detail::Access::make<typename Layer::Gradients>(state, where);
    }

    /// Takes a microbatch's gradients in and reduces them where the policy does so every microbatch; with the last
    /// microbatch the rest of the group's reduction runs too. Collective over the data ranks.
    /// @throws UsageError when the handle was added before; CommError when the engine fails
    template <class State, class AxisSet>
    void add(Gradients<State, Partial<AxisSet>>&& handle, SourceLocation where = SourceLocation::current()) {
        State* const state = detail::Access::release(handle);
        if (state == nullptr) {
            State::refuse_use(where, "Accumulation::add: this gradient handle was already added");
        }
        try {
            state->require_accumulation(scope_.number(), "add", where);
        } catch (...) {
            state->drop_gradients();
            throw;
        }
        add_to(*state, "add", where);
    }
    template <class Handle>
    void add(Handle& /*handle*/, SourceLocation /*where*/ = SourceLocation::current()) {
        constexpr bool consumed = sizeof(Handle) == 0;
        static_assert(consumed, "add consumes the gradients: write add(std::move(gradients))");
    }

    /// Adds zeros for a microbatch in which this rank did not use `layer`, so that the collective still runs.
    template <class Layer>
    void add_zero(Layer& layer, SourceLocation where = SourceLocation::current()) {
        auto& state = group_of(layer, "add_zero", where);
        state.take_gradients(where, "add_zero");
        add_to(state, "add_zero", where);
    }

    /// Says that `layer` has no gradient in this step on any rank: no collective runs, and the optimizer leaves its
    /// parameters, states and step count alone (as PyTorch does for a gradient of None).
    template <class Layer>
    void skip(Layer& layer, SourceLocation where = SourceLocation::current()) {
        group_of(layer, "skip", where).skip_step(where);
    }

  private:
    friend detail::Access;

    template <std::integral Count>
    static std::size_t count_of(Count count, SourceLocation where) {
        if (!std::in_range<std::size_t>(count) || count == 0) {
            throw_invalid_argument(where, "Accumulation: ", count,
                                   " microbatches given, expected at least 1, or until_reduced");
        }
        return static_cast<std::size_t>(count);
    }
    /// What stands behind a layer of the model.
    template <class Layer>
    auto& group_of(Layer& layer, std::string_view verb, SourceLocation where) const {
        auto& state = detail::Access::state(layer, where);
        using State = std::remove_reference_t<decltype(state)>;
        constexpr bool same_engine = std::is_same_v<typename State::Engine, Engine>;
        static_assert(same_engine, "Accumulation: this Sharded is of another engine than the model");
        state.require_accumulation(scope_.number(), verb, where);
        return state;
    }
    template <class State>
    static void add_to(State& state, std::string_view verb, SourceLocation where) {
        state.add_gradients(where, verb);
        if (state.has_all_microbatches()) { state.finish_gradients(where, verb); }
    }
    void set_all(std::size_t count, SourceLocation where);
    static void check_number(const detail::Group<Engine>& group, std::size_t count, SourceLocation where);
    static void set_number(detail::Group<Engine>& group, std::size_t count, SourceLocation where) {
        if (!group.trainable() || !group.step().accumulating()) { return; }
        group.set_microbatches(count);
        if (group.has_all_microbatches()) { group.finish_gradients(where, "set_microbatches"); }
    }

    const Groups<Engine>& groups(SourceLocation where) const {
        if (!scope_.live()) {
            detail::Group<Engine>::refuse_use(where, "reduce: this accumulation was already reduced");
        }
        return scope_.groups();
    }
    /// Runs what is left and gives the step away.
    detail::StepScope<Engine> finish(SourceLocation where) &&;

    detail::StepScope<Engine> scope_;
};

template <class G, class P, class E, class R>
Accumulation(Sharded<G, P, E, R>&, auto&&...) -> Accumulation<typename detail::NeedsModel<E>::Engine>;

template <class Engine>
void Accumulation<Engine>::check_number(const detail::Group<Engine>& group, std::size_t count, SourceLocation where) {
    if (!group.trainable() || group.step().skipped()) { return; }
    const std::size_t added = group.step().added();
    if (added > count || (added < count && !group.step().accumulating())) {
        throw_usage_error(where, "'", group.path(), "': set_microbatches(", count, ") after ", added, " were added",
                          group.step().accumulating() ? "" : " and reduced");
    }
}

template <class Engine>
void Accumulation<Engine>::set_all(std::size_t count, SourceLocation where) {
    const Groups<Engine>& model = groups(where);
    using detail::Access;
    Access::walk(
        model, [&](detail::Group<Engine>& group) { check_number(group, count, where); }, where);
    Access::walk(
        model, [&](detail::Group<Engine>& group) { set_number(group, count, where); }, where);
}

template <class Engine>
detail::StepScope<Engine> Accumulation<Engine>::finish(SourceLocation where) && {
    const Groups<Engine>& model = groups(where);
    const auto unfinished = [&](const auto& f) {
        detail::Access::walk(
            model,
            [&](detail::Group<Engine>& group) {
                if (group.trainable() && group.step().accumulating()) { f(group); }
            },
            where);
    };
    unfinished([&](detail::Group<Engine>& group) {
        const std::size_t added = group.step().added();
        if (added != 0 && added < group.microbatches()) {
            throw_usage_error(where, "'", group.path(), "': reduce() after ", added, " of ", group.microbatches(),
                              " microbatches; call add, or add_zero for one that did not use it");
        }
    });
    unfinished([&](detail::Group<Engine>& group) { group.finish_gradients(where, "reduce"); });
    return std::move(scope_);
}

}  // namespace shardkit::inline SHARDKIT_BUILD
