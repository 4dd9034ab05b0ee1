// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail {
struct SavedState;
}

namespace shardkit::checkpoint SHARDKIT_FACE {

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
    explicit State(const Model& model, SourceLocation where = SourceLocation::current());
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
    State& add(Optimizer& optimizer, SourceLocation where = SourceLocation::current());
    /// Adds a loss scale under a name; one loss scale may have none.
    /// @throws std::invalid_argument for a name that exists already
    State& add(LossScale& loss_scale, std::string name = {}, SourceLocation where = SourceLocation::current());
    /// Adds the user's bytes under a name. They are written from the vector, which must be the same on every rank,
    /// and a load replaces them.
    /// @throws std::invalid_argument for a name that exists already
    State& blob(std::string name, std::vector<std::uint8_t>& bytes, SourceLocation where = SourceLocation::current());

    Rank& rank() const noexcept { return *rank_; }

    // What saves, loads and reshards do with it.
    /// Returns the current state. Waits for the compute stream.
    detail::SavedState capture(SourceLocation where) const;
    /// Returns how often loads have given the parameters their values, all of them.
    std::uint64_t version(SourceLocation where) const;
    /// @throws UsageError when an optimizer cannot take its numbers; nothing has changed then
    void check_numbers(const detail::SavedState& numbers, SourceLocation where) const;
    /// Sets the numbers that are no tensors.
    void restore_numbers(const detail::SavedState& numbers, SourceLocation where) const;

  private:
    Rank* rank_;
    Model model_;
    std::vector<Optimizer*> optimizers_;
    std::vector<std::pair<std::string, LossScale*>> loss_scales_;
    std::vector<std::pair<std::string, std::vector<std::uint8_t>*>> blobs_;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/checkpoint/capture_state.hpp>
#endif
