// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

}  // namespace shardkit::shared::detail
