// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit SHARDKIT_FACE {

/// The state that a rank has on one side of a reshard: a checkpoint::State, a model alone, or nullptr for none. It
/// refers to the state's parts.
class ReshardSide {
  public:
    // NOLINTBEGIN(google-explicit-constructor): it is what reshard is given
    ReshardSide(const checkpoint::State& state) : state_(state) {}
    ReshardSide(const checkpoint::State* state) {
        if (state != nullptr) { state_ = *state; }
    }
    ReshardSide(const Model& model, SourceLocation where = SourceLocation::current())
        : state_(checkpoint::State(model, where)) {}
    // NOLINTEND(google-explicit-constructor)

    /// Returns the state; null if there is none.
    const checkpoint::State* state() const noexcept { return state_ ? &*state_ : nullptr; }
    /// Returns how many reshards and loads have ended that gave all of the state's parameters their values: which of
    /// the weights that were sent to it a destination has. 0 if there is no state.
    /// @throws UsageError when a group of the state has ended
    std::uint64_t version(SourceLocation where = SourceLocation::current()) const {
        return state_ ? state_->version(where) : 0;
    }

  private:
    std::optional<checkpoint::State> state_;
};

}  // namespace shardkit SHARDKIT_FACE
