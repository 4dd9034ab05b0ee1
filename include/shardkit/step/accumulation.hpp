// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <shardkit/core/dynamic.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/step/gradients.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/slices.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Reserves the groups of a model for one training step: while it lives, no second step over them can start. Its end
/// releases them, whether the step was completed or abandoned by an exception. Move-only.
class StepScope {
  public:
    /// `count` is the number of microbatches of every group, 0 if it is not known in advance.
    /// @throws UsageError when one of the groups is in another step; no group is changed then
    StepScope(const Model& groups, std::size_t count, SourceLocation where);
    StepScope(StepScope&& other) noexcept
        : groups_(std::exchange(other.groups_, std::nullopt)), number_(std::exchange(other.number_, 0)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        StepScope taken(std::move(other));
        StepScope ends(std::move(*this));
        groups_ = std::exchange(taken.groups_, std::nullopt);
        number_ = std::exchange(taken.number_, 0);
        return *this;
    }
    ~StepScope();  // NOLINT(bugprone-exception-escape): its groups live, so that walking them throws nothing

    bool live() const noexcept { return static_cast<bool>(groups_); }
    const Model& groups() const { return *groups_; }
    /// Returns a number that no other step of the process has; 0 after a move from this object.
    std::uint64_t number() const noexcept { return number_; }

  private:
    /// Returns the recorder or follower that is attached to all of the groups, null if there is none.
    static StepDirector* director_of(const Model& groups, SourceLocation where);

    std::optional<Model> groups_;
    std::uint64_t number_ = new_identity();
};

inline StepScope::StepScope(const Model& groups, std::size_t count, SourceLocation where) : groups_(groups) {
    static_cast<void>(detail::rank_of(groups, where));
    static_cast<void>(first_by_slices(groups, where));
    StepDirector* const director = director_of(groups, where);
    std::size_t begun = 0;
    try {
        for (Group& group : Access::each(groups, where)) {
            group.begin_step(number_, count, where);
            ++begun;
        }
        if (director != nullptr) [[unlikely]] { director->begin_step(begun, where); }
    } catch (...) {
        for (Group& group : Access::each(groups, where)) {
            if (begun-- == 0) { break; }
            group.end_step();
        }
        throw;
    }
}

inline StepScope::~StepScope() {  // NOLINT(bugprone-exception-escape): as above
    if (!groups_) { return; }
    // The director is looked up here and not stored: a recorder ends when `record` returns, even before the step
    // does. The groups are alive: one that ends during a step ends the program.
    StepDirector* director = nullptr;
    for (Group& group : Access::each(*groups_, SourceLocation{})) {
        group.end_step();
        director = group.directed().director();
    }
    if (director != nullptr) [[unlikely]] { director->end_step(); }
}

inline StepDirector* StepScope::director_of(const Model& groups, SourceLocation where) {
    StepDirector* first = nullptr;
    std::size_t number = 0;
    for (Group& group : Access::each(groups, where)) {
        StepDirector* const its = group.directed().any();
        if (number++ == 0) { first = its; }
        if (its != first) {
            group.refuse_group(
                where, "a schedule is followed, or a step recorded, for some of these groups and not for all");
        }
    }
    return first;
}

/// An optimizer that updates each group of a step behind the group's last reduction.
class BackwardUpdates {
  public:
    /// Checks that the group can be updated. @throws UsageError when a window is open
    virtual void check_group(const Group& group, SourceLocation where) const = 0;
    /// Takes note that the group's last reduction is under way, and gives the update of the group before, which by
    /// now has not to be waited for, to the compute stream.
    virtual void update_group(Group& group, SourceLocation where) = 0;
    /// Gives the update that is left to the compute stream, and its gradients back behind it.
    virtual void flush() = 0;
    /// Ends the step. One that is not complete leaves the updated groups torn.
    enum class End : std::uint8_t { complete, abandoned };
    virtual void end_backward(End end) noexcept = 0;

  protected:
    ~BackwardUpdates() = default;
};

/// An accumulation's link to the optimizer that updates its groups in the backward pass, if any. Move-only.
class BackwardStep {
  public:
    BackwardStep() noexcept = default;
    BackwardStep(BackwardStep&& other) noexcept : updates_(std::exchange(other.updates_, nullptr)) {}
    BackwardStep& operator=(BackwardStep&& other) noexcept {
        std::swap(updates_, other.updates_);
        return *this;
    }
    ~BackwardStep() { end(BackwardUpdates::End::abandoned); }

    void begin(BackwardUpdates& updates) noexcept { updates_ = &updates; }
    BackwardUpdates* get() const noexcept { return updates_; }
    void end(BackwardUpdates::End how) noexcept {
        if (updates_ != nullptr) { std::exchange(updates_, nullptr)->end_backward(how); }
    }

  private:
    BackwardUpdates* updates_ = nullptr;
};

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// The gradients of one step over a whole model, from the first microbatch to `reduce` or the optimizer's step. It
/// covers all groups of the model, so that the norm and the update cannot miss one: a group without a gradient is an
/// error unless `add_zero` or `skip` marks it.
///     Accumulation accumulation{model, microbatches};
/// It knows which microbatch is the last one, so that a group's reduction overlaps with the rest of that backward
/// pass.
/// Order:   `add` runs the policy's reductions, so every data rank must add the same groups in the same order.
class Accumulation {
  public:
    /// `count` is the number of microbatches: how often each group is added before its gradients are complete.
    /// @throws std::invalid_argument for no microbatches; UsageError when another accumulation over one of the groups
    ///         has not ended
    template <std::integral Count = std::size_t>
    [[nodiscard]] explicit Accumulation(const Model& model, Count count = 1,
                                        SourceLocation where = SourceLocation::current())
        : scope_(model, count_of(count, where), where) {}
    /// Begins a step whose number of microbatches is not known yet: `set_microbatches` sets it later, or `reduce`
    /// ends them. Until it is set, reductions that a policy makes once per step cannot overlap with the backward
    /// pass.
    [[nodiscard]] Accumulation(const Model& model, UntilReduced, SourceLocation where = SourceLocation::current())
        : scope_(model, 0, where) {}
    /// Rejects a layer in the place of a model, with an error that says what to write instead.
    template <class G, class P, class R>
    explicit Accumulation(Sharded<G, P, R>& layer,
                          auto&&...) requires(detail::NeedsModel<Sharded<G, P, R>>::is_model);

    /// Sets the number of microbatches of the step once it is known. Groups that have all of them are reduced here,
    /// in the model's order.
    /// Order:   collective over the data ranks of these groups
    /// @throws  std::invalid_argument for 0; UsageError when a group was already added more often
    template <std::integral Count>
    void set_microbatches(Count count, SourceLocation where = SourceLocation::current()) {
        set_all(count_of(count, where), where);
    }
    /// Sets the number of microbatches of one group: for a layer that is added more than once per microbatch, or not
    /// in each.
    template <class Layer, std::integral Count>
    void set_microbatches(Layer& layer, Count count, SourceLocation where = SourceLocation::current()) {
        detail::Group& group = group_of(layer, "set_microbatches", where);
        const std::size_t number = count_of(count, where);
        check_number(group, number, where);
        set_number(group, number, where);
    }

    /// Hands out the gradients of one microbatch of `layer`, for the backward pass to add to. They start at zero, or
    /// at the running sum where the policy accumulates unreduced gradients; those of an OverwrittenGradient are not
    /// zeroed.
    /// @throws UsageError when the layer's last handle was not added, or the layer is frozen, complete or not the
    /// model's
    template <class Layer>
    [[nodiscard]] auto gradients(Layer& layer, SourceLocation where = SourceLocation::current()) {
        auto& state = group_of(layer, "gradients", where);
        take(state, "gradients", detail::Writes::backward, where);
        return detail::Access::make<typename Layer::Gradients>(state, where);
    }

    /// Adds the gradients of one microbatch, and reduces them where the policy does so every microbatch. The last
    /// microbatch also starts the rest of the group's reduction. Collective over the data ranks.
    /// @throws UsageError when the handle was added before; CommError when the engine fails
    template <class State, class AxisSet>
    void add(Gradients<State, Partial<AxisSet>>&& handle, SourceLocation where = SourceLocation::current()) {
        State* const state = detail::Access::release(handle);
        if (state == nullptr) {
            State::refuse_use(where, "Accumulation::add: this gradient handle was already added");
        }
        try {
            state->require_accumulation(scope_.number(), "add", where);
            check_update(*state, where);
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

    /// Adds zeros for a microbatch in which this rank did not use `layer`, so that all ranks still join the
    /// collective.
    template <class Layer>
    void add_zero(Layer& layer, SourceLocation where = SourceLocation::current()) {
        auto& state = group_of(layer, "add_zero", where);
        check_update(state, where);
        take(state, "add_zero", detail::Writes::nobody, where);
        add_to(state, "add_zero", where);
    }

    /// Marks `layer` as having no gradient in this step on any rank. No collective runs, and the optimizer leaves its
    /// parameters, states and step count unchanged (as PyTorch does for a gradient of None).
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
    /// Returns the state of a layer of the model.
    template <class Layer>
    auto& group_of(Layer& layer, std::string_view verb, SourceLocation where) const {
        auto& state = detail::Access::state(layer, where);
        state.require_accumulation(scope_.number(), verb, where);
        return state;
    }
    template <class State>
    void take(State& state, std::string_view verb, detail::Writes writes, SourceLocation where) {
        if (backward_.get() != nullptr && !state.has_room_for_gradients()) [[unlikely]] { backward_.get()->flush(); }
        state.take_gradients(where, verb, writes);
    }
    template <class State>
    void add_to(State& state, std::string_view verb, SourceLocation where) {
        state.add_gradients(where, verb);
        if (state.has_all_microbatches()) { finish_group(state, verb, where); }
    }
    /// Checks, before a reduction that an update may follow, that the update can be made.
    void check_update(const detail::Group& group, SourceLocation where) const {
        if (backward_.get() != nullptr) [[unlikely]] { backward_.get()->check_group(group, where); }
    }
    void finish_group(detail::Group& group, std::string_view verb, SourceLocation where) {
        group.finish_gradients(where, verb);
        if (backward_.get() != nullptr) [[unlikely]] { backward_.get()->update_group(group, where); }
    }
    void set_all(std::size_t count, SourceLocation where);
    static void check_number(const detail::Group& group, std::size_t count, SourceLocation where);
    void set_number(detail::Group& group, std::size_t count, SourceLocation where) {
        if (!group.trainable() || !group.step().accumulating()) { return; }
        check_update(group, where);
        group.set_microbatches(count);
        if (group.has_all_microbatches()) { finish_group(group, "set_microbatches", where); }
    }

    const Model& groups(SourceLocation where) const {
        if (!scope_.live()) { detail::Group::refuse_use(where, "reduce: this accumulation was already reduced"); }
        return scope_.groups();
    }
    /// Makes the remaining reductions and hands the step over.
    detail::StepScope finish(SourceLocation where) &&;

    detail::StepScope scope_;
    detail::BackwardStep backward_;  // ends before the step does
};

inline void Accumulation::check_number(const detail::Group& group, std::size_t count, SourceLocation where) {
    if (!group.trainable() || group.step().skipped()) { return; }
    static_cast<void>(group.known_microbatches(count, where));
    const std::size_t added = group.step().added();
    if (added > count || (added < count && !group.step().accumulating())) {
        throw_usage_error(where, "'", group.path(), "': set_microbatches(", count, ") after ", added, " were added",
                          group.step().accumulating() ? "" : " and reduced");
    }
}

inline void Accumulation::set_all(std::size_t count, SourceLocation where) {
    const Model& model = groups(where);
    using detail::Access;
    for (detail::Group& group : Access::each(model, where)) { check_number(group, count, where); }
    for (detail::Group& group : Access::each(model, where)) { set_number(group, count, where); }
}

inline detail::StepScope Accumulation::finish(SourceLocation where) && {
    const Model& model = groups(where);
    const auto unfinished = [&](const auto& f) {
        for (detail::Group& group : detail::Access::each(model, where)) {
            if (group.trainable() && group.step().accumulating()) { f(group); }
        }
    };
    unfinished([&](detail::Group& group) {
        const std::size_t added = group.step().added();
        if (added != 0 && added < group.microbatches()) {
            throw_usage_error(where, "'", group.path(), "': reduce() after ", added, " of ", group.microbatches(),
                              " microbatches; call add, or add_zero for one that did not use it");
        }
    });
    unfinished([&](detail::Group& group) { check_update(group, where); });
    unfinished([&](detail::Group& group) { finish_group(group, "reduce", where); });
    if (backward_.get() != nullptr) { backward_.get()->flush(); }
    backward_.end(detail::BackwardUpdates::End::complete);
    return std::move(scope_);
}

}  // namespace shardkit SHARDKIT_BUILD
