// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include <shardkit/backend/threads/group.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>

namespace shardkit::threads::detail {

/// Owns the groups that ranks of one World were split into. A group is freed with the last handle of its members,
/// possibly after the World's end, or later if a stream still uses it. A group that not all members have taken is
/// freed with the World.
class GroupList {
  public:
    /// Guards the list, and the members of the World that say so; it is the World's mutex. A group is freed while it
    /// is held, so that code that holds it sees only live groups.
    std::mutex mutex;

    /// Calls visit(group) for every group. @pre the caller holds the mutex
    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& kept : groups_) { visit(*kept.group); }
    }

    /// Adds a group that each of its members takes once. @pre the caller holds the mutex of `list`
    static Group& add(const std::shared_ptr<GroupList>& list, shardkit::detail::Owned<Group> made) {
        Group& group = *made;
        list->sweep();
        list->groups_.reserve(list->groups_.size() + 1);
        list->untaken_.reserve(list->untaken_.size() + 1);
        std::shared_ptr<Group> handle(std::make_shared<Held>(list, &group), &group);
        list->groups_.push_back({std::move(made)});
        list->untaken_.push_back({std::move(handle), group.size()});
        return group;
    }

    /// Returns a member's first handle of a group.
    std::shared_ptr<Group> take(const Group& group) {
        const std::lock_guard lock(mutex);
        std::shared_ptr<Group> handle;
        untaken_.erase_if([&](Untaken& each) {
            if (each.group.get() != &group) { return false; }
            handle = each.group;
            return --each.members == 0;
        });
        return handle;
    }

    /// Closes the list at the World's end: no member takes a group any more, and no stream uses one.
    void close() noexcept {
        shardkit::detail::List<Untaken> untaken;
        const std::lock_guard lock(mutex);
        untaken.swap(untaken_);
    }

  private:
    /// What the handles of a group count; keeps the list alive as long as there are handles.
    struct Held : shardkit::detail::NotCopied {
        Held(const std::shared_ptr<GroupList>& of, const Group* held) noexcept : list(of), group(held) {}
        ~Held() { list->free(group); }
        const std::shared_ptr<GroupList> list;
        const Group* const group;
    };
    struct Untaken {
        std::shared_ptr<Group> group;
        std::size_t members;
    };

    void free(const void* group) noexcept {
        const std::lock_guard lock(mutex);
        for (Kept& kept : groups_) { kept.held = kept.held && kept.group.get() != group; }
        sweep();
    }
    void sweep() noexcept {
        groups_.erase_if([](const Kept& kept) { return !kept.held && !kept.group->in_use(); });
    }

    struct Kept {
        shardkit::detail::Owned<Group> group;
        bool held = true;
    };
    shardkit::detail::List<Kept> groups_;
    shardkit::detail::List<Untaken> untaken_;
};

}  // namespace shardkit::threads::detail
