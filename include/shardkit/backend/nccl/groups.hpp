// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>

namespace shardkit::nccl::detail {

/// Holds all groups of a rank: the world's first, then in the order in which they were made. Their addresses stay.
class Groups {
  public:
    /// Adds a place for a communicator that is about to be made.
    Group& add(std::string_view made_as) {
        Group& group = all_.emplace_back();
        group.made_as = made_as;
        return group;
    }
    /// Returns a group of one rank, which has no communicator and needs none: one for all of them.
    Group& alone() {
        if (alone_ == nullptr) { alone_ = &add("one rank alone"); }
        return *alone_;
    }
    std::deque<Group>& all() noexcept { return all_; }

    /// Says whether there are groups of `parent` that no communicator of this rank uses any more.
    bool has_idle(const Group& parent) const noexcept {
        return std::any_of(all_.begin(), all_.end(), [&](const Group& group) { return group.is_idle(parent); });
    }
    /// Returns the latest such groups of these ranks of the parent's.
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
