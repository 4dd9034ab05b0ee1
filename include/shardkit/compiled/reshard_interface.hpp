// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/compiled/checkpoint_interface.hpp>
#include <shardkit/reshard/reshard_options.hpp>
#include <shardkit/reshard/reshard_plan.hpp>

// What a trainer's file calls to reshard in the compiled form; compiled_reshard.hpp defines it.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

// A null state: the rank has none on that side.
ReshardPlan plan_reshard(Rank& rank, const SavedState* from, const SavedState* to, const ReshardOptions& options,
                         SourceLocation where);
/// Null `plan`: one is made for this call, with `options`.
ReshardReport reshard(Rank& rank, const ReshardPlan* plan, const SavedState* from, const SavedState* to,
                      const ReshardOptions& options, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
