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
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/groups.hpp>
#include <shardkit/step/loss_scale.hpp>

namespace shardkit {

namespace detail {

/// What is saved or loaded, as it is at the moment.
struct SavedState {
    std::vector<std::unique_ptr<SavedGroup>> groups;
    std::vector<SavedScalar> scalars;
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs;
};

/// f(name, number of the first choice) for each of a group's choices of hyper-parameters that count by themselves:
/// the optimizer's own, and those of a ParamGroup with betas, say, of its own.
template <class Group, class F>
void for_each_count(const Group& group, const F& f) {
    const auto choices = group.choices();
    for (std::size_t c = 0; c < choices.size(); ++c) {
        if (choices[c].counts_as != c) { continue; }
        f(c == 0 ? std::string() : concat("param_group_", choices[c].param_group, "."), c);
    }
}

/// Groups of an optimizer's states behind those of the model.
template <class Rule, class... T, class Optimizers>
void add_states(SavedState& state, Optimizers& optimizer, SourceLocation where) {
    using Progress = typename Rule::Progress;
    std::size_t number = 0;
    Access::for_each_saved(
        optimizer,
        [&](auto& layer, auto& group, auto& table) {
            using Its = std::remove_reference_t<decltype(layer)>;
            auto& saved =
                static_cast<SavedGroupOf<typename Its::Engine, typename Its::Precision>&>(*state.groups[number++]);
            if (!group.number()) { return; }
            saved.tell_too(group.reader());
            for (std::size_t s = 0; s < group.states_used(); ++s) {
                saved.add(Rule::state_names[s], group.state(s), saved.geometry().updated);
            }
            state.scalars.push_back(
                {concat("group.", layer.path(), ".steps"), false, table.progress(*group.number()).steps});
            if constexpr (requires { Rule::products; }) {
                for_each_count(group, [&](const std::string& of, std::size_t choice) {
                    const Progress progress = table.progress(*group.number(), choice);
                    for (const auto& product : Rule::products) {
                        state.scalars.push_back({concat("group.", layer.path(), ".", of, product.name), true,
                                                 std::bit_cast<std::uint64_t>(progress.*product.member)});
                    }
                });
            }
        },
        where);
}
/// Sets an optimizer's progress from scalars in the order of add_states; returns those behind them.
template <class Rule, class Optimizers>
std::span<const SavedScalar> restore_progress(std::span<const SavedScalar> scalars, Optimizers& optimizer,
                                              SourceLocation where) {
    using Progress = typename Rule::Progress;
    Access::for_each_saved(
        optimizer,
        [&](auto& /*layer*/, auto& group, auto& table) {
            if (!group.number()) { return; }
            const auto next = [&] {
                const std::uint64_t bits = scalars.front().bits;
                scalars = scalars.subspan(1);
                return bits;
            };
            std::vector<Progress> counts(group.choices().size());
            const std::uint64_t steps = next();
            if constexpr (requires { Rule::products; }) {
                for_each_count(group, [&](const std::string& /*of*/, std::size_t choice) {
                    for (const auto& product : Rule::products) {
                        counts[choice].*product.member = std::bit_cast<double>(next());
                    }
                });
            }
            for (std::size_t c = 0; c < counts.size(); ++c) {
                Progress progress = counts[group.choices()[c].counts_as];
                progress.steps = steps;
                table.set_progress(*group.number(), c, progress);
            }
        },
        where);
    return scalars;
}
/// What a rule keeps of its progress is all of it.
template <class Rule>
constexpr bool progress_is_named() {
    std::size_t members = 1;
    if constexpr (requires { Rule::products; }) { members += Rule::products.size(); }
    return sizeof(typename Rule::Progress) == 8 * members;
}

}  // namespace detail

/// What a checkpoint holds: a model's parameters, and the states of its optimizer, a loss scale, bytes of the user's.
///     CheckpointState state{model, optimizer, loss_scale};
///     state.blob("sampler", bytes);
/// It refers to all of them, which outlive it; every rank makes the same.
template <class EngineType>
class CheckpointState {
  public:
    using Engine = EngineType;

    /// A model alone. @throws std::invalid_argument for two groups with one path
    template <class... T>
    explicit CheckpointState(const Groups<T...>& model, SourceLocation where = SourceLocation::current())
        : context_(&model.context(where)) {
        check_paths(model, where);
        capture_ = [model](detail::SavedState& state, SourceLocation at) { add_groups(state, model, at); };
        restore_ = [](std::span<const detail::SavedScalar> scalars, SourceLocation /*at*/) { return scalars; };
    }
    /// With its optimizer.
    /// @throws std::invalid_argument as above, or when the optimizer is another model's
    template <class Rule, class... T>
    CheckpointState(const Groups<T...>& model, Optimizer<Rule, T...>& optimizer,
                    SourceLocation where = SourceLocation::current())
        : CheckpointState(model, where) {
        static_assert(detail::progress_is_named<Rule>(),
                      "CheckpointState: Rule::Progress has more than `steps`: Rule::products must name the rest");
        if (!(detail::Access::model(optimizer) == model)) {
            throw_invalid_argument(where, "CheckpointState: the optimizer is that of other groups than the model's");
        }
        capture_ = [model, &optimizer](detail::SavedState& state, SourceLocation at) {
            add_groups(state, model, at);
            detail::add_states<Rule>(state, optimizer, at);
        };
        restore_ = [&optimizer](std::span<const detail::SavedScalar> scalars, SourceLocation at) {
            return detail::restore_progress<Rule>(scalars, optimizer, at);
        };
    }
    /// And a loss scale.
    template <class Rule, class... T>
    CheckpointState(const Groups<T...>& model, Optimizer<Rule, T...>& optimizer, LossScale<Engine>& loss_scale,
                    SourceLocation where = SourceLocation::current())
        : CheckpointState(model, optimizer, where) {
        loss_scale_ = &loss_scale;
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

    template <class... T>
    static void check_paths(const Groups<T...>& model, SourceLocation where) {
        std::vector<std::string> paths;
        model.for_each([&](auto& layer) { paths.push_back(layer.path(where)); });
        std::sort(paths.begin(), paths.end());
        const auto twice = std::adjacent_find(paths.begin(), paths.end());
        if (twice != paths.end()) {
            throw_invalid_argument(where, "CheckpointState: two groups have the path '", *twice, "'");
        }
    }
    template <class... T>
    static void add_groups(detail::SavedState& state, const Groups<T...>& model, SourceLocation where) {
        model.for_each([&](auto& layer) {
            using Its = std::remove_reference_t<decltype(layer)>;
            state.groups.push_back(
                std::make_unique<detail::SavedGroupOf<typename Its::Engine, typename Its::Precision>>(
                    detail::Access::state(layer, where)));
        });
    }

    /// As things are now. Waits for the compute stream.
    detail::SavedState capture(SourceLocation where) const {
        detail::SavedState state;
        capture_(state, where);
        if (loss_scale_ != nullptr) {
            const LossScaleState scale = detail::Access::now(*loss_scale_);
            state.scalars.push_back({"loss_scale.value", true, std::bit_cast<std::uint64_t>(scale.value())});
            // With what a hysteresis counts in the upper half.
            state.scalars.push_back(
                {"loss_scale.clean_steps", false, scale.clean_steps() | std::uint64_t{scale.overflows()} << 32U});
        }
        state.blobs = blobs_;
        context_->communication_stream().synchronize();
        context_->compute_stream().synchronize();
        return state;
    }
    /// Sets what is no tensor from scalars in the order of `capture`.
    void restore(std::span<const detail::SavedScalar> scalars, SourceLocation where) const {
        scalars = restore_(scalars, where);
        if (loss_scale_ != nullptr) {
            detail::Access::restore(*loss_scale_, std::bit_cast<double>(scalars[0].bits),
                                    static_cast<std::uint32_t>(scalars[1].bits),
                                    static_cast<std::uint32_t>(scalars[1].bits >> 32U));
        }
    }

    Context<Engine>* context_;
    std::function<void(detail::SavedState&, SourceLocation)> capture_;
    std::function<std::span<const detail::SavedScalar>(std::span<const detail::SavedScalar>, SourceLocation)>
        restore_;
    LossScale<Engine>* loss_scale_ = nullptr;
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs_;
};

template <class... T>
CheckpointState(const Groups<T...>&, SourceLocation = {})
    -> CheckpointState<typename LayerOf<std::tuple_element_t<0, std::tuple<T...>>>::Engine>;
template <class... T, class Optimizer>
CheckpointState(const Groups<T...>&, Optimizer&, SourceLocation = {})
    -> CheckpointState<typename LayerOf<std::tuple_element_t<0, std::tuple<T...>>>::Engine>;
template <class... T, class Optimizer, class Scale>
CheckpointState(const Groups<T...>&, Optimizer&, Scale&, SourceLocation = {})
    -> CheckpointState<typename LayerOf<std::tuple_element_t<0, std::tuple<T...>>>::Engine>;

}  // namespace shardkit
