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

#include <shardkit/detail/sort_numbers.hpp>

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

    /// Splits by `wishes[q]`, which has rank q's color and key. The caller is `rank`.
    template <class Wishes>
    SplitGroups(const Wishes& wishes, std::size_t rank) {
        std::vector<std::size_t> colors;
        for (const auto& wish : wishes) { colors.push_back(wish.color); }
        shardkit::detail::sort_numbers({colors.data(), colors.size()});
        colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
        count = colors.size();
        for (std::size_t q = 0; q < wishes.size(); ++q) {
            const auto found = std::lower_bound(colors.begin(), colors.end(), wishes[q].color);
            group_of.push_back(static_cast<std::size_t>(found - colors.begin()));
            if (wishes[q].color == wishes[rank].color) { members.push_back(q); }
        }
        const auto before = [&](std::size_t a, std::size_t b) {
            return std::pair(wishes[a].key, a) < std::pair(wishes[b].key, b);
        };
        shardkit::detail::sort_numbers({members.data(), members.size()}, before);
        while (members[place] != rank) { ++place; }
    }
    /// Returns the index of the caller's group.
    std::size_t own() const noexcept { return group_of[members[place]]; }
};

}  // namespace shardkit::shared::detail
