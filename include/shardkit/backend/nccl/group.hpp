// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::nccl::detail {

/// Holds what a rank keeps for one communicator of NCCL's, at an address that stays.
struct Group {
    enum class Owner { world, user };

    ncclComm_t comm = nullptr;  ///< null until it is made, after it was destroyed or aborted, and for one rank alone
    bool being_made = false;    ///< NCCL may write `comm` at any time
    Owner owner = Owner::world;
    std::size_t rank = 0;
    std::size_t size = 1;
    std::string made_as;  ///< the name under which it was made, last; for error messages

    /// Describes what split made: its parent, its members among the parent's ranks, in its own order, and a number
    /// which is the same on all of them, and no other group's of the World.
    const Group* parent = nullptr;
    std::vector<std::size_t> members;
    std::uint64_t number = 0;
    shared::detail::GroupHandles handles;
    /// Says whether it was split off `of`, and no communicator of this rank uses it any more.
    bool is_idle(const Group& of) const noexcept { return parent == &of && handles.none(); }

    /// Points to the same ranks over a second communicator, for verbs that are given to the stream of reductions;
    /// null where they go over this one.
    Group* reductions = nullptr;

    /// Keeps what comparing calls needs: what this rank called over the group, and the same ranks over a communicator
    /// that serves nothing else. Null unless Options::compare_calls asks for it.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    const Group* comparison = nullptr;
    bool only_compares = false;  ///< it is such a communicator
};

/// Says what this rank gets from a call that makes communicators.
enum class Made { none, communicator };

/// All groups of a rank: the world's first, then in the order in which they were made. Their addresses stay.
class Groups {
  public:
    /// A place for a communicator that is about to be made.
    Group& add(std::string_view made_as) {
        Group& group = all_.emplace_back();
        group.made_as = made_as;
        return group;
    }
    /// A group of one rank, which has no communicator and needs none: one for all of them.
    Group& alone() {
        if (alone_ == nullptr) { alone_ = &add("one rank alone"); }
        return *alone_;
    }
    std::deque<Group>& all() noexcept { return all_; }

    /// Whether there are groups of `parent` that no communicator of this rank uses any more.
    bool has_idle(const Group& parent) const noexcept {
        return std::any_of(all_.begin(), all_.end(), [&](const Group& group) { return group.is_idle(parent); });
    }
    /// The latest such groups of these ranks of the parent's.
    shared::detail::GroupNumbers idle(const Group& parent, const std::vector<std::size_t>& members) const noexcept {
        shared::detail::GroupNumbers numbers{};
        std::size_t found = 0;
        for (auto group = all_.rbegin(); group != all_.rend() && found < numbers.size(); ++group) {
            if (group->is_idle(parent) && group->members == members) { numbers[found++] = group->number; }
        }
        return numbers;
    }
    Group& with(std::uint64_t number) noexcept {
        return *std::find_if(all_.begin(), all_.end(), [&](const Group& group) { return group.number == number; });
    }

  private:
    std::deque<Group> all_;
    Group* alone_ = nullptr;  // in there
};

}  // namespace shardkit::nccl::detail
