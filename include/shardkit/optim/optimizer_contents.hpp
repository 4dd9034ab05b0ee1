// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstdint>
#include <string>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/frame_members.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/held_memory.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// What an optimizer holds of one group that it updates.
struct OptimizerMemory {
    Group* group = nullptr;
    MemoryReader** reader = nullptr;  ///< where it keeps who reads this memory beside the rank's work
    std::string rule;                 ///< what its rule is called
    List<HeldMemory> held;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::spi SHARDKIT_FACE {

/// What an optimizer, or the parts of one, hold beside the model: for who saves, compares or counts it. It refers to
/// the optimizer.
class OptimizerContents {
  public:
    explicit OptimizerContents(Optimizer& optimizer, SourceLocation where = SourceLocation::current())
        : parts_(optimizer.parts()), where_(where) {}

    /// The memory of each group that it updates, in the model's order; a CombinedOptimizer has its parts' in turn.
    detail::List<detail::OptimizerMemory> held() const {
        detail::List<detail::OptimizerMemory> all;
        for_each_group([&](auto& part, auto& state, auto& group, auto& /*table*/) {
            auto& its = all.push_back({&state, &group.reader(), part.options(where_).rule->name(), {}});
            group.list(state.geometry(), its.held);
            part.groups_->list_own_shapes(state, its.held);
        });
        return all;
    }
    /// How far the updates of each of these groups are. Waits for the compute stream.
    detail::List<detail::GroupProgress> progress() const {
        detail::List<detail::GroupProgress> all;
        for_each_group(
            [&](auto& /*part*/, auto& /*state*/, auto& group, auto& table) { all.push_back(group.progress(table)); });
        return all;
    }
    /// Sets that, or only refuses what it cannot take. @returns the first one that is not its groups'
    /// @pre one for each group
    const detail::GroupProgress* set_progress(const detail::GroupProgress* of_groups, detail::Change change) const {
        for (auto* const part : parts_) { of_groups = part->set_progress(of_groups, change, where_); }
        return of_groups;
    }
    /// The hash of the hyper-parameters in the engine's memory, of each part. Waits likewise.
    detail::List<std::uint64_t> hyper_parameters() const {
        detail::List<std::uint64_t> all;
        for (auto* const part : parts_) { all.push_back(part->numbers_->read_hash(where_)); }
        return all;
    }
    /// Calls f(group, memory) for each state that has a number for each element.
    template <class F>
    void for_each_state(const F& f) const {
        for (const auto& of : held()) {
            for (const auto& each : of.held) {
                if (each.shape.rows == 0) { f(*of.group, each); }
            }
        }
    }

  private:
    template <class F>
    void for_each_group(const F& f) const {
        for (auto* const part : parts_) {
            part->for_each_group(
                [&](auto& state, auto& group, auto& table) {
                    if (group.number()) { f(*part, state, group, table); }
                },
                where_);
        }
    }

    detail::List<detail::OptimizerFrame*> parts_;
    SourceLocation where_;
};

}  // namespace shardkit::spi SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {
SHARDKIT_CORE_INLINE void Optimizer::list_shards(std::vector<ShardInfo>& list) {
    spi::OptimizerContents(*this, SourceLocation{}).for_each_state([&](const auto& group, const auto& each) {
        detail::list_shards(group.geometry(), each, list);
    });
}
}  // namespace shardkit SHARDKIT_FACE
