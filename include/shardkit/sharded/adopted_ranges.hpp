// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/immortal.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// Registers the memory that one group has adopted. While this object lives, no other group of the process, of
/// whichever rank, may adopt any of it: both would write to it. It is a template, so that a file compiles only the
/// members that it uses.
template <class>
class BasicAdoptedRanges : NotCopied {
  public:
    /// @throws std::invalid_argument, which names both groups, when another group holds some of the memory, or the
    /// two ranges overlap
    BasicAdoptedRanges(std::string_view path, std::span<const std::byte> parameters,
                       std::span<const std::byte> gradients, SourceLocation where)
        : BasicAdoptedRanges(path, where) {
        const std::lock_guard lock(mutex());
        add(0, parameters);
        add(1, gradients);
    }
    ~BasicAdoptedRanges() {
        const std::lock_guard lock(mutex());
        for (const std::byte* const begin : begins_) {
            if (begin != nullptr) { let_go(*place(begin)); }
        }
    }

  private:
    struct Range {
        const std::byte* begin;
        const std::byte* end;
        const BasicAdoptedRanges* holder;  // null once that group has ended
        std::size_t what;                  // index into the holder's `begins_` and into `names`
    };
    static constexpr std::string_view names[] = {"parameters", "gradients"};

    /// A constructor to delegate to, so that the destructor runs when the constructor that takes memory throws.
    BasicAdoptedRanges(std::string_view path, SourceLocation where) : path_(path), where_(where) {}

    // The lock and the list are never destroyed: a trainer of static storage releases its memory when the process
    // ends.
    static std::mutex& mutex() { return immortal<std::mutex, BasicAdoptedRanges>(); }
    /// The registered ranges, sorted by address. Ranges that have not ended are disjoint. Sorting keeps the cost of
    /// adopting a model proportional to its number of groups.
    static List<Range>& held() { return immortal<List<Range>>(); }
    /// Returns the first range that does not begin before `begin`.
    static auto place(const std::byte* begin) {
        return std::lower_bound(held().begin(), held().end(), begin,
                                [](const Range& range, const std::byte* at) { return range.begin < at; });
    }
    /// The number of ranges that have ended. They are erased before the next one is added, not one by one, so that
    /// the end of many groups takes linear time as well.
    static std::size_t& ended() { return immortal<std::size_t, BasicAdoptedRanges>(); }
    static void let_go(Range& range) {
        range.holder = nullptr;
        if (++ended() == held().size()) { forget_ended(); }
    }
    static void forget_ended() {
        held().erase_if([](const Range& range) { return range.holder == nullptr; });
        ended() = 0;
    }
    void add(std::size_t what, std::span<const std::byte> memory) {
        if (memory.empty()) { return; }
        if (ended() > 0) { forget_ended(); }
        const Range range{memory.data(), memory.data() + memory.size(), this, what};
        const auto at = place(range.begin);
        if (at != held().begin() && range.begin < std::prev(at)->end) { refuse(what, *std::prev(at)); }
        if (at != held().end() && at->begin < range.end) { refuse(what, *at); }
        std::size_t place = held().size();
        const auto behind = static_cast<std::size_t>(at - held().begin());
        for (held().push_back(range); place > behind; --place) { std::swap(held()[place], held()[place - 1]); }
        begins_[what] = range.begin;
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
using AdoptedRanges = BasicAdoptedRanges<void>;

}  // namespace shardkit::detail
