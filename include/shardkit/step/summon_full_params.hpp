// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit SHARDKIT_FACE {

/// A model's full parameters, current on every rank while this object lives. Windows of its groups open without
/// communication, on any rank and in any order. Move-only; its end is local work.
class FullParams {
  public:
    FullParams(const Model& groups, SourceLocation where);

  private:
    detail::List<detail::Owned<detail::Group, detail::drop_window>> open_;  // not in use yet
    detail::List<detail::Owned<detail::Group, detail::close_window>> shown_;
};

/// Makes the full parameters of every group current on all ranks, here and nowhere else: for work that one rank does
/// alone (evaluation, sampling, saving). It corresponds to PyTorch's FSDP.summon_full_params.
///     const auto full = summon_full_params(model);  // on every rank
///     if (rank.rank() == 0) { const auto w = layer.unshard(Gathers::never); ... }
/// While the result lives, an optimizer's step, load and initialize are refused, as under any window.
/// Order:   collective as an unshard of each group, in the model's order; the host does not wait.
/// Cost:    a gather of each group whose full copy is stale; memory for the full parameters of the groups that are
///          sharded at rest, allocated here and freed with the last window
/// @throws  MemoryError when there is none; CommError when the engine fails
[[nodiscard]] inline FullParams summon_full_params(const Model& groups,
                                                   SourceLocation where = SourceLocation::current()) {
    return {groups, where};
}

#ifndef SHARDKIT_COMPILED
SHARDKIT_CORE_INLINE FullParams::FullParams(const Model& groups, SourceLocation where) {
    static_cast<void>(detail::rank_of(groups, where));
    open_.reserve(groups.size());
    shown_.reserve(groups.size());
    for (detail::Group& group : spi::groups(groups, where)) {
        group.summon_window(where);
        open_.emplace_back(&group);
    }
    for (auto& each : open_) {
        each->use_window(where);
        shown_.emplace_back(each.release());
    }
}
#endif

}  // namespace SHARDKIT_FACE
