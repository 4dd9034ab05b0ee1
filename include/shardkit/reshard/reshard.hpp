// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/reshard/reshard_options.hpp>
#include <shardkit/reshard/reshard_plan.hpp>
#include <shardkit/reshard/reshard_side.hpp>

namespace shardkit SHARDKIT_FACE {

/// Plans a reshard: which elements each rank takes from which one. Nothing is moved.
///     const sk::ReshardPlan plan = sk::plan_reshard(rank, trained, evaluated);
///     std::puts(plan.describe().c_str());
/// A rank takes what it holds itself, then what a rank of its host holds, then what another one does; of several that
/// hold the same, the one that sends least so far. It receives each element that it keeps once.
/// Order:   collective over the world of `rank`, of which the states' meshes are parts; the host waits.
/// Cost:    as many comparisons of ranges as there are ranks times ranks times tensors, on every rank
/// @throws  as reshard, before anything is written
ReshardPlan plan_reshard(Rank& rank, const ReshardSide& from, const ReshardSide& to,
                         const ReshardOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Brings a state to another mesh without a file: `to` has then what it would have if `from` were saved and it loaded
/// that, to the bit. `from` does not change.
///     sk::reshard(rank, plan, trained, evaluated);
/// Order:   collective over the world of `rank`; after the work given to the compute streams; the host waits.
/// Cost:    a rank receives the bytes that it keeps and does not hold itself, in the source's element types. Memory:
///          ReshardOptions::staging_bytes
/// @throws  on every rank: FileError where what the source has is not what the destination expects, as a load does;
///          its path is the file that a save would have written. UsageError for a plan that was made for states that
///          lie otherwise. The engine's error when a rank fails. An error after the first element was moved leaves
///          the destination as a failed load: it is refused until another reshard or load succeeds
ReshardReport reshard(Rank& rank, const ReshardPlan& plan, const ReshardSide& from, const ReshardSide& to,
                      SourceLocation where = SourceLocation::current());
/// The same with a plan that is made for this call.
ReshardReport reshard(Rank& rank, const ReshardSide& from, const ReshardSide& to, const ReshardOptions& options = {},
                      SourceLocation where = SourceLocation::current());

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/reshard/reshard_run.hpp>
#endif
