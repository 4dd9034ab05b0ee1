// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/compiled/define_checkpoint.hpp>
#include <shardkit/compiled/reshard_interface.hpp>
#include <shardkit/reshard/reshard.hpp>

// Defines the class of reshard_interface.hpp for one engine.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class Engine>
class ReshardsOf final : public Reshards {
    using Side = ReshardSide<Engine>;

  public:
    ReshardPlan plan(Context& rank, const SavedState* from, const SavedState* to, const ReshardOptions& options,
                     SourceLocation where) const override {
        return plan_reshard(on<ContextOf<Engine>>(rank, where).core, side(from, where), side(to, where), options,
                            where);
    }
    ReshardReport reshard(Context& rank, const ReshardPlan* plan, const SavedState* from, const SavedState* to,
                          const ReshardOptions& options, SourceLocation where) const override {
        auto& core = on<ContextOf<Engine>>(rank, where).core;
        if (plan == nullptr) { return shardkit::reshard(core, side(from, where), side(to, where), options, where); }
        return shardkit::reshard(core, *plan, side(from, where), side(to, where), where);
    }

  private:
    static Side side(const SavedState* state, SourceLocation where) {
        return state == nullptr ? Side(nullptr) : Side(on<const SavedStateOf<Engine>>(*state, where).core);
    }
};

}  // namespace SHARDKIT_CHECKED_BUILD
