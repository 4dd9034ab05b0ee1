// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/model.hpp>

// The groups behind a model.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

struct GroupList : NotCopied {
    struct Member {
        Group* group;  ///< null: had been moved from
        std::uint64_t identity;
        std::weak_ptr<void> life;
        std::string path;
    };

    List<Member> members;
    std::atomic<std::size_t> holders{1};
};

SHARDKIT_CORE_INLINE GroupList* new_list() { return new GroupList; }
SHARDKIT_CORE_INLINE void add_group(GroupList& list, Group* group) {
    if (group == nullptr) {
        list.members.push_back({nullptr, 0, {}, {}});
    } else {
        list.members.push_back({group, group->identity(), group->life(), group->path()});
    }
}
SHARDKIT_CORE_INLINE void add_groups(GroupList& list, const GroupList* more) {
    if (more == nullptr) { return add_group(list, nullptr); }
    list.members.append(more->members.begin(), more->members.end());
}
SHARDKIT_CORE_INLINE GroupList* hold(GroupList* list) noexcept {
    if (list != nullptr) { ++list->holders; }
    return list;
}
SHARDKIT_CORE_INLINE void release(GroupList* list) noexcept {
    if (list != nullptr && --list->holders == 0) { delete list; }
}
SHARDKIT_CORE_INLINE std::size_t size_of(const GroupList* list) noexcept {
    return list == nullptr ? 0 : list->members.size();
}
SHARDKIT_CORE_INLINE Group& group_of(const GroupList* list, std::size_t number, SourceLocation where) {
    const GroupList::Member& member = list->members[number];
    if (!member.life.expired()) [[likely]] { return *member.group; }
    if (member.group == nullptr) { refuse_use(where, "Model: it was made of a Sharded that had been moved from"); }
    throw_usage_error(where, "'", member.path,
                      "': this group of the model has ended or was assigned to since the model was made; expected "
                      "groups that outlive their model: make the model anew, and its optimizer");
}
SHARDKIT_CORE_INLINE void require_list(const GroupList* list, SourceLocation where) {
    if (list != nullptr) [[likely]] { return; }
    refuse_use(where,
               "a Model, or an optimizer over it, was used after it was moved from: use the one that it was "
               "moved to, or copy the Model instead");
}
SHARDKIT_CORE_INLINE bool same_groups(const GroupList* a, const GroupList* b) noexcept {
    if (a == b) { return true; }
    if (size_of(a) != size_of(b) || a == nullptr || b == nullptr) { return false; }
    for (std::size_t i = 0; i < a->members.size(); ++i) {
        if (a->members[i].identity != b->members[i].identity) { return false; }
    }
    return true;
}

/// Returns the rank of a model's groups, with its scalars and its world.
/// @throws UsageError when the model has no groups, or two were made with different Ranks: a divisor, a norm and a
/// step
///         belong to one mesh
inline Rank& rank_of(const Model& groups, SourceLocation where) {
    Rank* first = nullptr;
    std::string_view path;
    for (Group& group : spi::groups(groups, where)) {
        if (first == nullptr) {
            first = &group.rank();
            path = group.path();
        } else {
            first->require_same(path, group.rank(), group.path(), where);
        }
    }
    if (first == nullptr) { refuse_use(where, "Model: this model has no groups: every range is empty"); }
    return *first;
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
