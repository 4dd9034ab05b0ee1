// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/step/model.hpp>

// What holds the groups of a step, in both forms. step/accumulation_members.hpp defines what is declared here.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Reserves the groups of a model for one training step: while it lives, no second step over them can start. Its end
/// releases them, whether the step was completed or abandoned by an exception. Move-only.
class StepScope {
  public:
    /// `count` is the number of microbatches of every group, 0 if it is not known in advance.
    /// @throws UsageError when one of the groups is in another step; no group is changed then
    StepScope(const Model& groups, std::size_t count, SourceLocation where);
    StepScope(StepScope&& other) noexcept
        : groups_(std::move(other.groups_)), number_(std::exchange(other.number_, 0)) {}
    StepScope& operator=(StepScope&& other) noexcept {
        StepScope taken(std::move(other));  // ends what this object held
        std::swap(groups_, taken.groups_);
        std::swap(number_, taken.number_);
        return *this;
    }
    ~StepScope();  // NOLINT(bugprone-exception-escape): its groups live, so that walking them throws nothing

    bool live() const noexcept { return groups_.valid(); }
    const Model& groups() const noexcept { return groups_; }
    /// Returns a number that no other step of the process has; 0 after a move from this object.
    std::uint64_t number() const noexcept { return number_; }

  private:
    Model groups_;
    std::uint64_t number_;
};

/// An optimizer that updates each group of a step behind the group's last reduction.
class BackwardUpdates {
  public:
    /// Checks that the group can be updated. @throws UsageError when a window is open
    virtual void check_group(const Group& group, SourceLocation where) const = 0;
    /// Takes note that the group's last reduction is under way, and gives the update of the group before, which by
    /// now has not to be waited for, to the compute stream.
    virtual void update_group(Group& group, SourceLocation where) = 0;
    /// Gives the update that is left to the compute stream, and its gradients back behind it.
    virtual void flush() = 0;
    /// Ends the step. One that is not complete leaves the updated groups torn.
    enum class End : std::uint8_t { complete, abandoned };
    virtual void end_backward(End end) noexcept = 0;

  protected:
    ~BackwardUpdates() = default;
};

inline void abandon(BackwardUpdates& updates) noexcept { updates.end_backward(BackwardUpdates::End::abandoned); }
/// An accumulation's link to the optimizer that updates its groups in the backward pass, if any. Move-only.
using BackwardStep = Owned<BackwardUpdates, abandon>;

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
