// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/immortal.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// Registers the memory that one group has adopted. While this object lives, no other group of the process, of
/// whichever rank, may adopt any of it: both would write to it.
class AdoptedRanges : NotCopied {
  public:
    /// @throws std::invalid_argument, which names both groups, when another group holds some of the memory, or the
    /// two ranges overlap
    AdoptedRanges(std::string_view path, std::span<const std::byte> parameters, std::span<const std::byte> gradients,
                  SourceLocation where)
        : AdoptedRanges(path, where) {
        const std::lock_guard lock(mutex());
        add(0, parameters);
        add(1, gradients);
    }
    ~AdoptedRanges() {
        const std::lock_guard lock(mutex());
        for (const std::byte* const begin : begins_) { held().erase(begin); }
    }

  private:
    struct Range {
        const std::byte* end;
        const AdoptedRanges* holder;
        std::size_t what;  // index into the holder's `begins_` and into `names`
    };
    static constexpr std::string_view names[] = {"parameters", "gradients"};

    /// A constructor to delegate to, so that the destructor runs when the constructor that takes memory throws.
    AdoptedRanges(std::string_view path, SourceLocation where) : path_(path), where_(where) {}

    // The lock and the list are never destroyed: a trainer of static storage releases its memory when the process
    // ends.
    static std::mutex& mutex() { return immortal<std::mutex, AdoptedRanges>(); }
    /// The registered ranges, which are disjoint, by their first bytes.
    static std::map<const std::byte*, Range>& held() { return immortal<std::map<const std::byte*, Range>>(); }

    [[gnu::cold]] void add(std::size_t what, std::span<const std::byte> memory) {
        if (memory.empty()) { return; }
        const std::byte* const end = memory.data() + memory.size();
        const auto at = held().lower_bound(memory.data());
        if (at != held().begin() && memory.data() < std::prev(at)->second.end) {
            refuse(what, std::prev(at)->second);
        }
        if (at != held().end() && at->first < end) { refuse(what, at->second); }
        held().emplace_hint(at, memory.data(), Range{end, this, what});
        begins_[what] = memory.data();
    }
    [[noreturn]] void refuse(std::size_t what, const Range& other) const {
        throw_invalid_argument(where_, "'", path_, "': the adopted ", names[what], " lie in the memory of the ",
                               names[other.what], " of '", other.holder->path_, "', adopted at ",
                               other.holder->where_.file, ":", other.holder->where_.line,
                               "; expected memory of its own for each group and rank");
    }

    std::string path_;
    SourceLocation where_;
    std::array<const std::byte*, 2> begins_{};
};
}  // namespace shardkit::detail
