// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {

/// Runs the updates of an optimizer's groups, whose steps and rules the optimizer has brought into a table: the rules
/// of elements in launches of several groups, Muon's by exchanges of whole matrices, Adafactor's in passes with sums
/// over the world. `skip` lies in the engine's memory, the same in all calls: a step whose gradients overflowed.
class UpdateRunner : detail::NotCopied {
  public:
    virtual ~UpdateRunner() = default;

    /// Begins to list groups, in place of those that were listed before.
    void start() noexcept { listed_.clear(); }
    void list(const detail::TrainedGroup& each) { listed_.push_back(each); }
    /// Makes what steps of the groups need, all of which are listed. Collective over the world where steps are.
    virtual void prepare(Rank& rank, const detail::UpdateTable& table, const std::uint32_t* skip,
                         SourceLocation where) = 0;
    /// Makes one step of those listed groups that take part in it, on the compute stream.
    virtual void run(Rank& rank, const detail::UpdateTable& table, const std::uint32_t* skip,
                     SourceLocation where) = 0;
    /// Makes one step of one group alone, if groups do not depend on each other.
    virtual void run_one(const detail::TrainedGroup& /*each*/, Rank& /*rank*/, const detail::UpdateTable& /*table*/,
                         const std::uint32_t* /*skip*/) {
        detail::end_program("a step of one group alone, whose update is made with those of others");
    }
    /// The bytes of this rank's buffers beside states.
    virtual std::size_t bytes() const noexcept { return 0; }
    /// Appends each state of a group that has another shape than its parameter.
    virtual void list_own_shapes(const detail::GroupGeometry& /*group*/, std::size_t /*rank*/,
                                 detail::List<detail::HeldMemory>& /*held*/) const {}

  protected:
    /// Refuses groups that a rule of whole parameters, called `kind`, has no step for, and those of whose updates no
    /// file of the program launches one, which launches(AnyUpdateWork) says.
    template <class Launches>
    void require_groups(Rank& rank, const detail::UpdateTable& table, const std::uint32_t* skip, const char* kind,
                        SourceLocation where, const Launches& launches) const {
        for (const detail::TrainedGroup& each : listed_) {
            const detail::AnyUpdateWork of = detail::work_at_rest(each, table.updates(), each.steps, skip);
            detail::require_launch(rank.compute_stream(), of, launches(of), each.state->path(), where);
            if (!each.group->uneven()) { continue; }
            throw_invalid_argument(where, "'", each.state->path(),
                                   "': some rows of a parameter have taken other numbers of steps than the rest, "
                                   "for which ",
                                   kind, " has no step");
        }
    }
    /// Lets the compute stream wait for the gradients of those groups that take part in a step.
    void wait_for_gradients() const {
        for (const detail::TrainedGroup& each : listed_) {
            if (each.taken) { each.state->gradients().wait(); }
        }
    }

    detail::List<detail::TrainedGroup> listed_;
};

}  // namespace shardkit::spi SHARDKIT_CHECKED_BUILD
