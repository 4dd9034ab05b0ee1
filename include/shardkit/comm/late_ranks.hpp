// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Returns "rank 2" or "ranks 0-1, 3-63", or the same of `what` else.
[[gnu::cold]] inline std::string ranks_text(const std::vector<std::size_t>& all, std::string_view what = "rank") {
    std::vector<std::size_t> ranks = all;
    std::sort(ranks.begin(), ranks.end());
    std::string text = concat(what, ranks.size() == 1 ? " " : "s ");
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) { ++last; }
        append(text, i == 0 ? "" : ", ", ranks[i], last == i ? "" : concat("-", ranks[last]));
        i = last + 1;
    }
    return text;
}

/// Returns "barrier at train.cpp:9 (call 3 over world)".
[[gnu::cold]] inline std::string text_of(const recorder::RecentCall& call) {
    const std::string text = describe(call.signature, call.where, call.subject);
    return is_message(call.signature.verb) ? concat(text, " (over ", call.axes, ")")
                                           : concat(text, " (call ", call.sequence, " over ", call.axes, ")");
}

/// A rank's wait for others: behind half of its limit it warns, and behind all of it it is late.
class LateWait {
  public:
    using Clock = std::chrono::steady_clock;

    /// Begins, also anew.
    void begin() noexcept { begin_ = Clock::now(); }
    bool has_begun() const noexcept { return begin_ != Clock::time_point{}; }
    /// Returns whether it is late. Warns once with on_late("late: " + warning(half of the limit)), if there is one.
    template <class OnLate, class Warning>
    bool is_late(std::chrono::milliseconds limit, const OnLate& on_late, const Warning& warning) {
        const auto waited = Clock::now() - begin_;
        if (waited <= limit / 2) {
            warned_ = false;
        } else if (!std::exchange(warned_, true) && on_late) {
            on_late(concat("late: ", warning(limit / 2)));
        }
        return waited > limit;
    }

  private:
    Clock::time_point begin_{};
    bool warned_ = false;
};

/// The ranks that others wait for, or where each waits for another one, all that wait.
struct MissingRanks {
    std::vector<std::size_t> ranks;
    std::string text;  ///< "rank 1 has not entered barrier at train.cpp:9 (call 3 over world)"
};

}  // namespace shardkit::detail
