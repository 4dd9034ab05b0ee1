// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/saved_state.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit {

namespace detail {

inline namespace SHARDKIT_BUILD {

/// Takes an optimizer's states and numbers into a state that has its groups, fastest in their order.
template <class Engine>
class CaptureStates final : public StateVisitor<Engine> {
  public:
    explicit CaptureStates(SavedState& to) : to_(to) {}

    void group(Group<Engine>& group, MemoryReader*& reader) override {
        while (to_.groups[number_]->geometry().path != group.path()) { number_ = (number_ + 1) % to_.groups.size(); }
        group_ = &group;
        saved().also_block(reader);
    }
    void progress(GroupProgress& progress) override { to_.progress.push_back({number_, progress}); }
    void state(std::string_view name, std::span<float> values) override { add(name, values); }
    void state(std::string_view name, std::span<double> values) override { add(name, values); }
    bool restores() const noexcept override { return false; }

  private:
    SavedGroup& saved() const { return *to_.groups[number_]; }
    template <class T>
    void add(std::string_view name, std::span<T> values) {
        saved().values.push_back(std::make_unique<SavedValuesOf<Engine, T>>(
            group_->context(), group_->geometry(), group_->communicators(), StoredKind{Role::states, name}, values,
            group_->geometry().updated, to_.progress.back().progress.updated));
    }

    SavedState& to_;
    std::size_t number_ = 0;  // of the group
    Group<Engine>* group_ = nullptr;
};
/// Sets an optimizer's numbers, in the order of CaptureStates.
template <class Engine>
class RestoreStates final : public StateVisitor<Engine> {
  public:
    explicit RestoreStates(std::span<const SavedProgress> progress) : left_(progress) {}

    void group(Group<Engine>& /*group*/, MemoryReader*& /*reader*/) override {}
    void state(std::string_view /*name*/, std::span<float> /*values*/) override {}
    void state(std::string_view /*name*/, std::span<double> /*values*/) override {}
    void progress(GroupProgress& progress) override {
        progress = left_.front().progress;
        left_ = left_.subspan(1);
    }
    bool restores() const noexcept override { return true; }

  private:
    std::span<const SavedProgress> left_;
};

}  // namespace SHARDKIT_BUILD

}  // namespace detail

inline namespace SHARDKIT_BUILD {

/// What a checkpoint holds: a model's parameters, and the states of optimizers, loss scales, bytes of the user's.
///     CheckpointState state{model, optimizer, loss_scale};
///     state.blob("sampler", bytes);
/// An optimizer may be that of some of the groups: the state can be that of several models, each with its optimizer
/// and its loss scale, or have a moving average of the weights besides. `add` takes the second one and further ones.
///     CheckpointState state{Model{generator, critic, averages}, of_generator};
///     state.add(of_critic).add(loss_scale).add(critics_loss_scale, "critic");
/// It refers to all of them, which outlive it; every rank makes the same.
template <class EngineType>
class CheckpointState {
  public:
    using Engine = EngineType;

    /// A model alone. @throws std::invalid_argument for two groups with one path
    template <class Precision>
    explicit CheckpointState(const Model<Engine, Precision>& model, SourceLocation where = SourceLocation::current())
        : context_(&model.context(where)),
          model_(model),
          add_groups_([model](detail::SavedState& state, SourceLocation at) { add_groups(state, model, at); }) {
        check_paths(model, where);
    }
    /// With an optimizer of all its groups, or of some.
    /// @throws std::invalid_argument as above, or when the optimizer has a group that is not the model's
    template <class Precision>
    CheckpointState(const Model<Engine, Precision>& model, Optimizer<Engine>& optimizer,
                    SourceLocation where = SourceLocation::current())
        : CheckpointState(model, where) {
        add(optimizer, where);
    }
    /// And a loss scale.
    template <class Precision>
    CheckpointState(const Model<Engine, Precision>& model, Optimizer<Engine>& optimizer,
                    LossScale<Engine>& loss_scale, SourceLocation where = SourceLocation::current())
        : CheckpointState(model, optimizer, where) {
        add(loss_scale, {}, where);
    }

    /// One more optimizer, of other groups of the model.
    /// @throws std::invalid_argument when it has a group that is not the model's, or another optimizer's too
    CheckpointState& add(Optimizer<Engine>& optimizer, SourceLocation where = SourceLocation::current()) {
        const auto identities = [&](const Groups<Engine>& groups) {
            std::vector<std::uint64_t> list;
            detail::Access::walk(
                groups, [&](const detail::Group<Engine>& group) { list.push_back(group.identity()); }, where);
            std::sort(list.begin(), list.end());
            return list;
        };
        const auto require = [&](const Groups<Engine>& among, bool expected, const char* text) {
            const std::vector<std::uint64_t> known = identities(among);
            detail::Access::walk(
                optimizer.model(),
                [&](const detail::Group<Engine>& group) {
                    if (std::binary_search(known.begin(), known.end(), group.identity()) == expected) { return; }
                    throw_invalid_argument(where, "CheckpointState: '", group.path(), "' of the optimizer ", text);
                },
                where);
        };
        require(model_, true, "is no group of the model");
        for (Optimizer<Engine>* const other : optimizers_) {
            require(other->model(), false,
                    "is another optimizer's too: expected one for each group, as a CombinedOptimizer is");
        }
        optimizers_.push_back(&optimizer);
        return *this;
    }
    /// One more loss scale, under a name; one may have none.
    /// @throws std::invalid_argument for a name that is there
    CheckpointState& add(LossScale<Engine>& loss_scale, std::string name = {},
                         SourceLocation where = SourceLocation::current()) {
        for (const auto& [known, at] : loss_scales_) {
            if (known == name) {
                throw_invalid_argument(where, "CheckpointState: two loss scales are called '", name,
                                       "', expected a name for each: add(loss_scale, name)");
            }
        }
        loss_scales_.emplace_back(std::move(name), &loss_scale);
        return *this;
    }
    /// Bytes of the user's under a name: written from the vector, the same on every rank, and replaced by what is
    /// loaded.
    /// @throws std::invalid_argument for a name that is there
    CheckpointState& blob(std::string name, std::vector<std::uint8_t>& bytes,
                          SourceLocation where = SourceLocation::current()) {
        for (const auto& [known, at] : blobs_) {
            if (known == name) {
                throw_invalid_argument(where, "CheckpointState: two blobs are called '", name, "'");
            }
        }
        blobs_.emplace_back(std::move(name), &bytes);
        return *this;
    }

    Context<Engine>& context() const noexcept { return *context_; }

  private:
    friend detail::Access;

    static void check_paths(const Groups<Engine>& model, SourceLocation where) {
        std::vector<std::string> paths;
        model.for_each([&](const auto& group) { paths.push_back(group.path()); }, where);
        std::sort(paths.begin(), paths.end());
        const auto twice = std::adjacent_find(paths.begin(), paths.end());
        if (twice != paths.end()) {
            throw_invalid_argument(where, "CheckpointState: two groups have the path '", *twice, "'");
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

    /// As things are now. Waits for the compute stream.
    detail::SavedState capture(SourceLocation where) const {
        detail::SavedState state;
        add_groups_(state, where);
        detail::CaptureStates<Engine> states(state);
        for (Optimizer<Engine>* const optimizer : optimizers_) { detail::Access::visit(*optimizer, states, where); }
        for (const auto& [name, loss_scale] : loss_scales_) {
            const LossScaleState scale = detail::Access::now(*loss_scale);
            const std::string begin = detail::concat("loss_scale.", name, name.empty() ? "" : ".");
            state.scalars.push_back({begin + "value", true, std::bit_cast<std::uint64_t>(scale.value())});
            // With what a hysteresis counts in the upper half.
            state.scalars.push_back(
                {begin + "clean_steps", false, scale.clean_steps() | std::uint64_t{scale.overflows()} << 32U});
        }
        state.blobs = blobs_;
        context_->communication_stream().synchronize();
        context_->compute_stream().synchronize();
        return state;
    }
    /// Sets what is no tensor, in the order of `capture`.
    void restore(std::span<const detail::SavedProgress> progress, std::span<const detail::SavedScalar> scalars,
                 SourceLocation where) const {
        detail::RestoreStates<Engine> states(progress);
        for (Optimizer<Engine>* const optimizer : optimizers_) { detail::Access::visit(*optimizer, states, where); }
        for (std::size_t i = 0; i < loss_scales_.size(); ++i) {
            const std::uint64_t counts = scalars[2 * i + 1].bits;
            detail::Access::restore(*loss_scales_[i].second, std::bit_cast<double>(scalars[2 * i].bits),
                                    static_cast<std::uint32_t>(counts), static_cast<std::uint32_t>(counts >> 32U));
        }
    }

    Context<Engine>* context_;
    Groups<Engine> model_;
    std::function<void(detail::SavedState&, SourceLocation)> add_groups_;
    std::vector<Optimizer<Engine>*> optimizers_;
    std::vector<std::pair<std::string, LossScale<Engine>*>> loss_scales_;
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs_;
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit
