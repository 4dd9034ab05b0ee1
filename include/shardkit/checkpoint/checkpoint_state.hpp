// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/converted_states.hpp>
#include <shardkit/checkpoint/saved_kept.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/name_table.hpp>
#include <shardkit/detail/sort_numbers.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Captures an optimizer's states and numbers. The groups of the state are found fastest in the optimizer's order.
template <class Engine>
class CaptureStates final : public StateVisitor<Engine> {
  public:
    explicit CaptureStates(SavedState& to) : to_(to) {}

    void group(Group<Engine>& group, MemoryReader*& reader, std::string_view rule) override {
        rule_ = rule;
        while (to_.groups[number_]->geometry().path != group.path()) { number_ = (number_ + 1) % to_.groups.size(); }
        group_ = &group;
        saved().also_block(reader);
    }
    void progress(GroupProgress& progress) override { to_.progress.push_back({number_, progress}); }
    void state(std::string_view name, std::span<float> values, bool square) override { add(name, values, square); }
    void state(std::string_view name, std::span<double> values, bool square) override { add(name, values, square); }
    void state(std::string_view name, std::span<bf16> values, bool square) override { add(name, values, square); }
    void state(std::string_view name, rules::Block8Span values, bool square) override {
        saved().forms.push_back(state_form(group_->context(), saved().values.size(), values, square));
        add_values(name, values.codes);
        const SavedValues& codes = *saved().values.back();
        keep(std::make_unique<SavedScales<Engine>>(group_->context(), group_->geometry(), group_->communicators(),
                                                   codes.kind, values.scales, codes.of));
    }
    void kept(const KeptValues<float>& kept) override { add_kept(kept); }
    void kept(const KeptValues<double>& kept) override { add_kept(kept); }
    typename StateVisitor<Engine>::Purpose purpose() const noexcept override {
        return StateVisitor<Engine>::Purpose::capture;
    }

  private:
    template <class A>
    void add_kept(const KeptValues<A>& kept) {
        keep(std::make_unique<SavedKept<Engine, A>>(group_->context(), group_->geometry(), group_->communicators(),
                                                    kept));
    }
    SavedGroup& saved() const { return *to_.groups[number_]; }
    template <class T>
    void add(std::string_view name, std::span<T> values, bool square) {
        saved().forms.push_back(state_form(group_->context(), saved().values.size(), values, square));
        add_values(name, values);
    }
    template <class T>
    void add_values(std::string_view name, std::span<T> values) {
        keep(std::make_unique<SavedValuesOf<Engine, T>>(
            group_->context(), group_->geometry(), group_->communicators(), StoredKind{Role::states, name}, values,
            group_->geometry().updated, to_.progress.back().progress.updated));
    }
    void keep(std::unique_ptr<SavedValues> values) {
        values->rule = rule_;
        saved().values.push_back(std::move(values));
    }

    SavedState& to_;
    std::size_t number_ = 0;  // index of the group
    Group<Engine>* group_ = nullptr;
    std::string rule_;
};
/// Gives optimizers their numbers, in the order of CaptureStates: to check whether they can take them, or to set
/// them.
template <class Engine>
class GiveNumbers final : public StateVisitor<Engine> {
  public:
    using Purpose = typename StateVisitor<Engine>::Purpose;
    GiveNumbers(Purpose purpose, std::span<const SavedProgress> progress) : purpose_(purpose), left_(progress) {}

    void progress(GroupProgress& progress) override {
        progress = left_.front().progress;
        left_ = left_.subspan(1);
    }
    Purpose purpose() const noexcept override { return purpose_; }

  private:
    Purpose purpose_;
    std::span<const SavedProgress> left_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit::checkpoint SHARDKIT_BUILD {

/// The contents of a checkpoint: a model's parameters, the states of optimizers, loss scales, and bytes of the user.
///     State state{model, optimizer, loss_scale};
///     state.blob("sampler", bytes);
/// An optimizer may have some of the groups only: the state may be that of several models, each with its optimizer
/// and its loss scale, or also hold a moving average of the weights. `add` takes the second one and further ones.
///     State state{Model{generator, critic, averages}, of_generator};
///     state.add(of_critic).add(loss_scale).add(critics_loss_scale, "critic");
/// A State refers to its parts, which must outlive it. Every rank makes the same one.
template <class EngineType>
class State {
  public:
    using Engine = EngineType;

    /// The contents are a model alone. @throws std::invalid_argument for two groups with one path
    template <class Precision>
    explicit State(const Model<Engine, Precision>& model, SourceLocation where = SourceLocation::current())
        : context_(&model.context(where)),
          model_(model),
          add_groups_([model](detail::SavedState& state, SourceLocation at) { add_groups(state, model, at); }) {
        check_paths(model, where);
    }
    /// The contents are a model and an optimizer of all or some of its groups.
    /// @throws std::invalid_argument for two groups with one path, or when the optimizer has a group that is not the
    /// model's
    template <class Precision>
    State(const Model<Engine, Precision>& model, Optimizer<Engine>& optimizer,
          SourceLocation where = SourceLocation::current())
        : State(model, where) {
        add(optimizer, where);
    }
    /// The contents are a model, an optimizer and a loss scale.
    template <class Precision>
    State(const Model<Engine, Precision>& model, Optimizer<Engine>& optimizer, LossScale<Engine>& loss_scale,
          SourceLocation where = SourceLocation::current())
        : State(model, optimizer, where) {
        add(loss_scale, {}, where);
    }

    /// Adds an optimizer of other groups of the model.
    /// @throws std::invalid_argument when it has a group that is not the model's, or that another optimizer has
    State& add(Optimizer<Engine>& optimizer, SourceLocation where = SourceLocation::current()) {
        const auto identities = [&](const Groups<Engine>& groups) {
            detail::List<std::size_t> list;
            for (const detail::Group<Engine>& group : detail::Access::each(groups, where)) {
                list.push_back(group.identity());
            }
            detail::sort_numbers({list.data(), list.size()});
            return list;
        };
        const auto require = [&](const Groups<Engine>& among, bool expected, const char* text) {
            const detail::List<std::size_t> known = identities(among);
            for (const detail::Group<Engine>& group : detail::Access::each(optimizer.model(), where)) {
                if (std::binary_search(known.begin(), known.end(), group.identity()) == expected) { continue; }
                throw_invalid_argument(where, "checkpoint::State: '", group.path(), "' of the optimizer ", text);
            }
        };
        require(model_, true, "is no group of the model");
        for (Optimizer<Engine>* const other : optimizers_) {
            require(other->model(), false,
                    "is another optimizer's too: expected one for each group, as a CombinedOptimizer is");
        }
        optimizers_.push_back(&optimizer);
        return *this;
    }
    /// Adds a loss scale under a name; one loss scale may have none.
    /// @throws std::invalid_argument for a name that exists already
    State& add(LossScale<Engine>& loss_scale, std::string name = {},
               SourceLocation where = SourceLocation::current()) {
        for (const auto& [known, at] : loss_scales_) {
            if (known == name) {
                throw_invalid_argument(where, "checkpoint::State: two loss scales are called '", name,
                                       "', expected a name for each: add(loss_scale, name)");
            }
        }
        loss_scales_.push_back({std::move(name), &loss_scale});
        return *this;
    }
    /// Adds the user's bytes under a name. They are written from the vector, which must be the same on every rank,
    /// and a load replaces them.
    /// @throws std::invalid_argument for a name that exists already
    State& blob(std::string name, std::vector<std::uint8_t>& bytes,
                SourceLocation where = SourceLocation::current()) {
        for (const auto& [known, at] : blobs_) {
            if (known == name) {
                throw_invalid_argument(where, "checkpoint::State: two blobs are called '", name, "'");
            }
        }
        blobs_.push_back({std::move(name), &bytes});
        return *this;
    }

    Context<Engine>& context() const noexcept { return *context_; }

  private:
    friend detail::Access;

    static void check_paths(const Groups<Engine>& model, SourceLocation where) {
        detail::NameIndex paths;
        for (const detail::Group<Engine>& group : detail::Access::each(model, where)) {
            if (paths.add(group.path()).is_new) { continue; }
            throw_invalid_argument(where, "checkpoint::State: two groups have the path '", group.path(), "'");
        }
    }
    template <class Precision>
    static void add_groups(detail::SavedState& state, const Model<Engine, Precision>& model, SourceLocation where) {
        model.for_each_state(
            [&]<class P>(detail::GroupState<Engine, P>& group) {
                state.groups.push_back(std::make_unique<detail::SavedGroupOf<Engine, P>>(group));
            },
            where);
    }

    /// Returns the current state. Waits for the compute stream.
    detail::SavedState capture(SourceLocation where) const {
        detail::SavedState state;
        add_groups_(state, where);
        trust_waits(state);
        detail::CaptureStates<Engine> states(state);
        for (Optimizer<Engine>* const optimizer : optimizers_) { detail::Access::visit(*optimizer, states, where); }
        for (const auto& [name, loss_scale] : loss_scales_) {
            const LossScaleState scale = detail::Access::now(*loss_scale);
            const std::string begin = detail::concat("loss_scale.", name, name.empty() ? "" : ".");
            state.scalars.push_back({begin + "value", true, std::bit_cast<std::uint64_t>(scale.value())});
            // The upper half holds the overflows that a hysteresis counts.
            state.scalars.push_back(
                {begin + "clean_steps", false, scale.clean_steps() | std::uint64_t{scale.overflows()} << 32U});
        }
        state.blobs = blobs_;
        context_->communication_stream().synchronize();
        context_->compute_stream().synchronize();
        return state;
    }
    /// Lets the host wait for streams of a World that has lost ranks since, if the values are those before the loss.
    void trust_waits(detail::SavedState& state) const {
        if constexpr (requires(const typename Engine::Stream stream) { stream.trust(true); }) {
            for (const auto& group : state.groups) {
                if (!group->was_waited_for()) { return; }
            }
            const std::array streams{context_->communication_stream(), context_->compute_stream()};
            for (const auto& stream : streams) { stream.trust(true); }
            state.trust = std::shared_ptr<void>(nullptr, [streams](void*) {
                for (const auto& stream : streams) { stream.trust(false); }
            });
        }
    }
    std::uint64_t version(SourceLocation where) const {
        std::uint64_t least = UINT64_MAX;
        for (const detail::Group<Engine>& group : detail::Access::each(model_, where)) {
            least = std::min(least, group.version());
        }
        return least;
    }
    /// Gives the optimizers their numbers, in the order of `capture`.
    void give(typename detail::StateVisitor<Engine>::Purpose purpose, const detail::SavedState& numbers,
              SourceLocation where) const {
        detail::GiveNumbers<Engine> states(purpose, numbers.progress);
        for (Optimizer<Engine>* const optimizer : optimizers_) { detail::Access::visit(*optimizer, states, where); }
    }
    /// @throws UsageError when an optimizer cannot take its numbers; nothing has changed then
    void check_numbers(const detail::SavedState& numbers, SourceLocation where) const {
        give(detail::StateVisitor<Engine>::Purpose::check, numbers, where);
    }
    /// Sets the numbers that are no tensors.
    void restore_numbers(const detail::SavedState& numbers, SourceLocation where) const {
        give(detail::StateVisitor<Engine>::Purpose::restore, numbers, where);
        const detail::List<detail::SavedScalar>& scalars = numbers.scalars;
        for (std::size_t i = 0; i < loss_scales_.size(); ++i) {
            const std::uint64_t counts = scalars[2 * i + 1].bits;
            detail::Access::restore(*loss_scales_[i].scale, std::bit_cast<double>(scalars[2 * i].bits),
                                    static_cast<std::uint32_t>(counts), static_cast<std::uint32_t>(counts >> 32U));
        }
    }

    Context<Engine>* context_;
    Groups<Engine> model_;
    std::function<void(detail::SavedState&, SourceLocation)> add_groups_;
    struct NamedScale {
        std::string name;
        LossScale<Engine>* scale;
    };
    detail::List<Optimizer<Engine>*> optimizers_;
    detail::List<NamedScale> loss_scales_;
    detail::List<detail::SavedBlob> blobs_;
};

}  // namespace SHARDKIT_BUILD
