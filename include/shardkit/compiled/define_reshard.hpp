// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/compiled/core_checkpoint.hpp>
#include <shardkit/compiled/reshard_interface.hpp>
#include <shardkit/reshard/reshard.hpp>

// Defines the functions of reshard_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

static ReshardSide side_of(const SavedState* state) {
    return state == nullptr ? ReshardSide(nullptr) : ReshardSide(core_of(*state));
}
ReshardPlan plan_reshard(Rank& rank, const SavedState* from, const SavedState* to, const ReshardOptions& options,
                         SourceLocation where) {
    return shardkit::plan_reshard(rank, side_of(from), side_of(to), options, where);
}
ReshardReport reshard(Rank& rank, const ReshardPlan* plan, const SavedState* from, const SavedState* to,
                      const ReshardOptions& options, SourceLocation where) {
    if (plan == nullptr) { return shardkit::reshard(rank, side_of(from), side_of(to), options, where); }
    return shardkit::reshard(rank, *plan, side_of(from), side_of(to), where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
