// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/step_observer.hpp>
#include <shardkit/step/group_list.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::spi SHARDKIT_FACE {

/// Checks that nobody observes the model's steps, and that no step of it has begun.
/// @throws UsageError
inline void require_unobserved(const Model& model, SourceLocation where) {
    for (detail::Group& group : groups(model, where)) {
        if (group.observed().any() != nullptr) {
            refuse_group(group, where, "a schedule is followed already, or a step recorded; expected one at a time");
        }
        if (group.step().busy()) { refuse_group(group, where, "a step is under way; expected none"); }
    }
}

/// Lets an observer see the steps of a model while it lives. It must end before the observer does.
class Observation : detail::NotCopied {
  public:
    /// @throws UsageError as require_unobserved
    Observation(const Model& model, StepObserver& observer, SourceLocation where = SourceLocation::current()) {
        require_unobserved(model, where);
        for (detail::Group& group : groups(model, where)) { groups_.push_back(&group.observed()); }
        for (std::size_t g = 0; g < groups_.size(); ++g) { groups_[g]->set(&observer, g); }
    }
    ~Observation() { end(); }

    void end() noexcept {
        for (detail::ObservedGroup* const group : groups_) { group->set(nullptr, 0); }
        groups_.clear();
    }

  private:
    detail::List<detail::ObservedGroup*> groups_;  // valid even if a step moves the user's objects
};

}  // namespace shardkit::spi SHARDKIT_FACE
