// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/optim/kept_values.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// A state of one parameter that has a shape of its own: all of it on the rank that owns it, or on every rank.
template <class Engine, class A>
class SavedKept final : private GroupGeometry, public SavedValuesOf<Engine, A> {
  public:
    SavedKept(Context<Engine>& context, const GroupGeometry& group, const GroupCommunicators<Engine>& communicators,
              const KeptValues<A>& kept)
        : GroupGeometry(geometry_of(group, kept)),
          SavedValuesOf<Engine, A>(context, *this, communicators, {Role::states, kept.name}, kept.values,
                                   GroupGeometry::updated, only(group, kept.parameter)) {
        this->name_as(group, kept.parts > 1 ? concat(" of tp ", kept.tp, "/", kept.parts) : "");
    }

  private:
    static List<char> only(const GroupGeometry& group, std::size_t parameter) {
        List<char> of(group.parameters.size());
        of[parameter] = 1;
        return of;
    }
    /// A geometry in which the owner is alone, or all ranks have copies.
    static GroupGeometry geometry_of(const GroupGeometry& group, const KeptValues<A>& kept) {
        GroupGeometry g;
        static_cast<GroupDescription&>(g) = group;
        g.path = group.path;
        g.parameters = group.parameters;
        PlacedParameter& p = g.parameters[kept.parameter];
        if (kept.everywhere) {
            g.replicas = group.shards * group.replicas * group.ep;
            g.replica_index = group.data_index();
            g.tp_index = group.tp_index;
            g.ep = 1;
            g.experts = p.experts = false;
        } else {
            g.replicas = g.tp = 1;
            g.ep_index = group.ep_index;
        }
        g.shards = 1;
        g.buffer_numel = g.shard_numel = kept.rows * kept.of_each;
        g.own = g.updated = {0, kept.owned ? g.buffer_numel : 0};
        p.shape = {};
        p.shape.rank = 2;
        p.shape.extents[0] = kept.rows * g.ep;
        p.shape.extents[1] = kept.of_each;
        p.tp = {};
        p.part = part_of(p, p.shape, {1, 0, g.ep, g.ep_index});
        p.range = {0, g.buffer_numel};
        return g;
    }
};

}  // namespace shardkit::detail
