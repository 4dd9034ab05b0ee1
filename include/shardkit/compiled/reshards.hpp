// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include <shardkit/compiled/checkpoints.hpp>
#include <shardkit/compiled/reshard_interface.hpp>

// What reshard.hpp is in the compiled form; its functions are described in reshard/reshard.hpp.

namespace shardkit SHARDKIT_BUILD {

/// The state that a rank has on one side of a reshard: see reshard/reshard.hpp.
template <class Engine>
class ReshardSide {
  public:
    // NOLINTBEGIN(google-explicit-constructor): it is what reshard is given
    ReshardSide(const checkpoint::State<Engine>& state) : state_(state) {}
    ReshardSide(const checkpoint::State<Engine>* state) {
        if (state != nullptr) { state_ = *state; }
    }
    template <class Precision>
    ReshardSide(const Model<Engine, Precision>& model, SourceLocation where = SourceLocation::current())
        : state_(checkpoint::State<Engine>(model, where)) {}
    // NOLINTEND(google-explicit-constructor)

    std::uint64_t version(SourceLocation where = SourceLocation::current()) const {
        return state_ ? compiled::reshards_of(state_->core(), where).version(state_->core(), where) : 0;
    }
    const compiled::SavedState* core() const noexcept { return state_ ? &state_->core() : nullptr; }

  private:
    std::optional<checkpoint::State<Engine>> state_;
};

template <class Engine>
ReshardPlan plan_reshard(Context<Engine>& rank, const std::type_identity_t<ReshardSide<Engine>>& from,
                         const std::type_identity_t<ReshardSide<Engine>>& to, const ReshardOptions& options = {},
                         SourceLocation where = SourceLocation::current()) {
    return compiled::reshards_of(rank.core(), where).plan(rank.core(), from.core(), to.core(), options, where);
}
template <class Engine>
ReshardReport reshard(Context<Engine>& rank, const ReshardPlan& plan,
                      const std::type_identity_t<ReshardSide<Engine>>& from,
                      const std::type_identity_t<ReshardSide<Engine>>& to,
                      SourceLocation where = SourceLocation::current()) {
    return compiled::reshards_of(rank.core(), where)
        .reshard(rank.core(), &plan, from.core(), to.core(), plan.options(), where);
}
template <class Engine>
ReshardReport reshard(Context<Engine>& rank, const std::type_identity_t<ReshardSide<Engine>>& from,
                      const std::type_identity_t<ReshardSide<Engine>>& to, const ReshardOptions& options = {},
                      SourceLocation where = SourceLocation::current()) {
    return compiled::reshards_of(rank.core(), where)
        .reshard(rank.core(), nullptr, from.core(), to.core(), options, where);
}

}  // namespace SHARDKIT_BUILD
