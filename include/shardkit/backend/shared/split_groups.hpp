// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace shardkit::shared::detail {

/// Counts how many of a rank's communicators use one of its groups. Without any, the group may be reused.
class GroupHandles {
  public:
    using Handle = std::shared_ptr<const char>;

    /// Returns a handle for a communicator to keep.
    const Handle& handle() const noexcept { return handle_; }
    bool none() const noexcept { return handle_.use_count() == 1; }

  private:
    Handle handle_ = std::make_shared<const char>();
};

/// The numbers of some groups, padded with zeros, which are no group's: ranks exchange them to find groups to reuse.
using GroupNumbers = std::array<std::uint64_t, 8>;

/// Returns the numbers of the latest of `groups` that are idle.
template <class Groups, class IsIdle>
GroupNumbers latest_idle(const Groups& groups, const IsIdle& is_idle) noexcept {
    GroupNumbers numbers{};
    std::size_t found = 0;
    for (auto group = groups.rbegin(); group != groups.rend() && found < numbers.size(); ++group) {
        if (is_idle(*group)) { numbers[found++] = group->number; }
    }
    return numbers;
}

/// Returns, for each of `count` groups, the number of a group that is idle on all of its members, or 0. `group_of[q]`
/// is rank q's group.
inline std::vector<std::uint64_t> idle_for_all(const std::vector<std::size_t>& group_of, std::size_t count,
                                               const std::vector<GroupNumbers>& idle) {
    std::vector<std::optional<GroupNumbers>> common(count);
    for (std::size_t q = 0; q < idle.size(); ++q) {
        auto& numbers = common[group_of[q]];
        if (!numbers) { numbers = idle[q]; }
        for (std::uint64_t& number : *numbers) {
            if (std::find(idle[q].begin(), idle[q].end(), number) == idle[q].end()) { number = 0; }
        }
    }
    std::vector<std::uint64_t> chosen;
    for (const auto& numbers : common) {
        const auto found = std::find_if(numbers->begin(), numbers->end(), [](std::uint64_t n) { return n != 0; });
        chosen.push_back(found == numbers->end() ? 0 : *found);
    }
    return chosen;
}

/// The result of splitting a group: ranks with the same color form a group, ordered by key, then by rank.
struct SplitGroups {
    std::vector<std::size_t> group_of;  ///< for each rank the index of its color, in the order of the colors
    std::size_t count = 0;              ///< number of groups
    std::vector<std::size_t> members;   ///< of the caller's group, by their rank before the split
    std::size_t place = 0;              ///< the caller's place in its group

    SplitGroups() = default;
    /// Splits by `wishes[q]`, which has rank q's color and key. The caller is `rank`.
    template <class Wishes>
    [[gnu::cold]] SplitGroups(const Wishes& wishes, std::size_t rank) {
        std::vector<std::size_t> colors;
        for (const auto& wish : wishes) {
            const auto at = std::lower_bound(colors.begin(), colors.end(), wish.color);
            if (at == colors.end() || *at != wish.color) { colors.insert(at, wish.color); }
        }
        count = colors.size();
        for (std::size_t q = 0; q < wishes.size(); ++q) {
            const auto found = std::lower_bound(colors.begin(), colors.end(), wishes[q].color);
            group_of.push_back(static_cast<std::size_t>(found - colors.begin()));
            if (wishes[q].color != wishes[rank].color) { continue; }
            members.insert(std::upper_bound(members.begin(), members.end(), wishes[q].key,
                                            [&](auto key, std::size_t member) { return key < wishes[member].key; }),
                           q);
        }
        while (members[place] != rank) { ++place; }
    }
    /// Returns the index of the caller's group.
    std::size_t own() const noexcept { return group_of[members[place]]; }
};

/// What a rank says of a split by an engine that uses groups again.
struct SplitWish {
    std::uint64_t color;
    std::uint64_t key;
    std::uint64_t number;  ///< of the group, if it is new and this rank is its first
    std::uint64_t idle;    ///< 1: this rank has groups that it does not use
};

/// A split after which groups that no member uses any more are used again.
struct ReusingSplit : SplitGroups {
    bool makes = false;        ///< whether any group is new, the same on all ranks, which all take part in making it
    std::uint64_t again = 0;   ///< number of the caller's group, if it is used again; otherwise 0
    std::uint64_t number = 0;  ///< of the caller's group, if it is new

    /// Splits by what all ranks say. gather(record) returns every rank's record; it is called twice where all members
    /// of a group of `least` ranks or more, which is one that is made, have idle ones. idle(members) are the
    /// caller's.
    template <class Gather, class Idle>
    ReusingSplit(const SplitWish& wish, std::size_t rank, std::size_t least, const Gather& gather, const Idle& idle) {
        const std::vector<SplitWish> wishes = gather(wish);
        static_cast<SplitGroups&>(*this) = SplitGroups(wishes, rank);
        number = wishes[members.front()].number;
        std::vector<std::size_t> sizes(count);
        std::vector<std::size_t> have_idle(count);
        for (std::size_t q = 0; q < wishes.size(); ++q) {
            ++sizes[group_of[q]];
            have_idle[group_of[q]] += wishes[q].idle;
        }
        const auto any_group = [&](const auto& is_so) {
            for (std::size_t g = 0; g < count; ++g) {
                if (sizes[g] >= least && is_so(g)) { return true; }
            }
            return false;
        };
        std::vector<std::uint64_t> used_again(count);
        if (any_group([&](std::size_t g) { return have_idle[g] == sizes[g]; })) {
            used_again = idle_for_all(group_of, count, gather(idle(members)));
        }
        makes = any_group([&](std::size_t g) { return used_again[g] == 0; });
        again = used_again[own()];
    }
};

}  // namespace shardkit::shared::detail
