// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::checkpoint SHARDKIT_BUILD {

/// The contents of a checkpoint: a model's parameters, the states of optimizers, loss scales, and bytes of the user.
///     State state{model, optimizer, loss_scale};
///     state.blob("sampler", bytes);
/// An optimizer may have some of the groups only: the state may be that of several models, each with its optimizer
/// and its loss scale, or also hold a moving average of the weights. `add` takes the second one and further ones.
///     State state{Model{generator, critic, averages}, of_generator};
///     state.add(of_critic).add(loss_scale).add(critics_loss_scale, "critic");
/// A State refers to its parts, which must outlive it. Every rank makes the same one.
class State {
  public:
    /// The contents are a model alone. @throws std::invalid_argument for two groups with one path
    explicit State(const Model& model, SourceLocation where = SourceLocation::current())
        : rank_(&detail::rank_of(model, where)), model_(model) {
        check_paths(model, where);
    }
    /// The contents are a model and an optimizer of all or some of its groups.
    /// @throws std::invalid_argument for two groups with one path, or when the optimizer has a group that is not the
    /// model's
    State(const Model& model, Optimizer& optimizer, SourceLocation where = SourceLocation::current())
        : State(model, where) {
        add(optimizer, where);
    }
    /// The contents are a model, an optimizer and a loss scale.
    State(const Model& model, Optimizer& optimizer, LossScale& loss_scale,
          SourceLocation where = SourceLocation::current())
        : State(model, optimizer, where) {
        add(loss_scale, {}, where);
    }

    /// Adds an optimizer of other groups of the model.
    /// @throws std::invalid_argument when it has a group that is not the model's, or that another optimizer has
    State& add(Optimizer& optimizer, SourceLocation where = SourceLocation::current()) {
        const auto identities = [&](const Model& groups) {
            detail::List<std::size_t> list;
            for (const detail::Group& group : detail::Access::each(groups, where)) {
                list.push_back(group.identity());
            }
            std::sort(list.begin(), list.end());
            return list;
        };
        const auto require = [&](const Model& among, bool expected, const char* text) {
            const detail::List<std::size_t> known = identities(among);
            for (const detail::Group& group : detail::Access::each(optimizer.model(), where)) {
                if (std::binary_search(known.begin(), known.end(), group.identity()) == expected) { continue; }
                throw_invalid_argument(where, "checkpoint::State: '", group.path(), "' of the optimizer ", text);
            }
        };
        require(model_, true, "is no group of the model");
        for (Optimizer* const other : optimizers_) {
            require(other->model(), false,
                    "is another optimizer's too: expected one for each group, as a CombinedOptimizer is");
        }
        optimizers_.push_back(&optimizer);
        return *this;
    }
    /// Adds a loss scale under a name; one loss scale may have none.
    /// @throws std::invalid_argument for a name that exists already
    State& add(LossScale& loss_scale, std::string name = {}, SourceLocation where = SourceLocation::current()) {
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

    Rank& rank() const noexcept { return *rank_; }

  private:
    friend detail::Access;

    static void check_paths(const Model& model, SourceLocation where) {
        std::set<std::string_view> paths;
        for (const detail::Group& group : detail::Access::each(model, where)) {
            if (paths.insert(group.path()).second) { continue; }
            throw_invalid_argument(where, "checkpoint::State: two groups have the path '", group.path(), "'");
        }
    }
    /// Returns the current state. Waits for the compute stream.
    detail::SavedState capture(SourceLocation where) const {
        detail::SavedState state;
        detail::List<detail::SavedGroupOf*> groups;
        for (detail::Group& group : detail::Access::each(model_, where)) {
            auto saved = std::make_unique<detail::SavedGroupOf>(group);
            groups.push_back(saved.get());
            state.groups.push_back(std::move(saved));
        }
        trust_waits(state, where);
        for (detail::SavedGroupOf* const group : groups) { group->list_own(); }
        std::size_t number = 0;  // of a group, which is found fastest in the optimizer's order
        for_each_part([&](detail::OptimizerFrame& optimizer) {
            const auto progress = detail::Access::progress(optimizer, where);
            std::size_t next = 0;
            for (const auto& of : detail::Access::held(optimizer, where)) {
                for (std::size_t tried = 0; !groups[number]->is(*of.group); number = (number + 1) % groups.size()) {
                    if (tried++ < groups.size()) { continue; }
                    throw_usage_error(
                        where, "checkpoint::State: '", of.group->path(),
                        "' is no group of the model, and the optimizer that has it was assigned to since "
                        "the State was made: expected an optimizer of groups of the model, or a State "
                        "that is made anew");
                }
                groups[number]->list(of);
                state.progress.push_back({number, progress[next++]});
            }
        });
        for (const auto& [name, loss_scale] : loss_scales_) {
            const LossScaleState scale = detail::Access::now(*loss_scale, where);
            const std::string begin = detail::concat("loss_scale.", name, name.empty() ? "" : ".");
            state.scalars.push_back({begin + "value", true, std::bit_cast<std::uint64_t>(scale.value())});
            // The upper half holds the overflows that a hysteresis counts.
            state.scalars.push_back(
                {begin + "clean_steps", false, scale.clean_steps() | std::uint64_t{scale.overflows()} << 32U});
        }
        state.blobs = blobs_;
        rank_->communication_stream().synchronize();
        rank_->compute_stream().synchronize();
        return state;
    }
    /// Lets the host wait for streams of a World that has lost ranks since, if the values are those before the loss.
    void trust_waits(detail::SavedState& state, SourceLocation where) const {
        if (detail::host_reads(rank_->compute_stream())) { return; }
        for (detail::Group& group : detail::Access::each(model_, where)) {
            if (!rank_->compute_stream().was_waited_for(group.parameters().updated())) { return; }
        }
        const std::array streams{rank_->communication_stream(), rank_->compute_stream()};
        for (const auto& stream : streams) { stream.trust(true); }
        state.trust = std::shared_ptr<void>(nullptr, [streams](void*) {
            for (const auto& stream : streams) { stream.trust(false); }
        });
    }
    std::uint64_t version(SourceLocation where) const {
        std::uint64_t least = UINT64_MAX;
        for (const detail::Group& group : detail::Access::each(model_, where)) {
            least = std::min(least, group.version());
        }
        return least;
    }
    /// f(optimizer) for each that holds something.
    template <class F>
    void for_each_part(const F& f) const {
        for (Optimizer* const optimizer : optimizers_) {
            for (detail::OptimizerFrame* const part : detail::Access::parts(*optimizer)) { f(*part); }
        }
    }
    /// Gives the optimizers their numbers, in the order of `capture`.
    void give(detail::Change change, const detail::SavedState& numbers, SourceLocation where) const {
        std::vector<detail::GroupProgress> progress;
        for (const detail::SavedProgress& each : numbers.progress) { progress.push_back(each.progress); }
        std::span<const detail::GroupProgress> left(progress);
        for_each_part([&](detail::OptimizerFrame& optimizer) {
            const std::size_t count = detail::Access::held(optimizer, where).size();
            detail::Access::set_progress(optimizer, left.first(count), change, where);
            left = left.subspan(count);
        });
    }
    /// @throws UsageError when an optimizer cannot take its numbers; nothing has changed then
    void check_numbers(const detail::SavedState& numbers, SourceLocation where) const {
        give(detail::Change::check, numbers, where);
    }
    /// Sets the numbers that are no tensors.
    void restore_numbers(const detail::SavedState& numbers, SourceLocation where) const {
        give(detail::Change::make, numbers, where);
        const detail::List<detail::SavedScalar>& scalars = numbers.scalars;
        for (std::size_t i = 0; i < loss_scales_.size(); ++i) {
            const std::uint64_t counts = scalars[2 * i + 1].bits;
            detail::Access::restore(*loss_scales_[i].scale, std::bit_cast<double>(scalars[2 * i].bits),
                                    static_cast<std::uint32_t>(counts), static_cast<std::uint32_t>(counts >> 32U));
        }
    }

    Rank* rank_;
    Model model_;
    struct NamedScale {
        std::string name;
        LossScale* scale;
    };
    detail::List<Optimizer*> optimizers_;
    detail::List<NamedScale> loss_scales_;
    detail::List<detail::SavedBlob> blobs_;
};

}  // namespace SHARDKIT_BUILD
