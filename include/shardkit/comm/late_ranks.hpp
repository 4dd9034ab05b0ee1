// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/rank_record.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/detail/sort_numbers.hpp>

namespace shardkit::detail {

/// Returns "rank 2" or "ranks 0-1, 3-63", or the same of `what` else.
inline std::string ranks_text(const std::vector<std::size_t>& all, std::string_view what = "rank") {
    std::vector<std::size_t> ranks = all;
    sort_numbers({ranks.data(), ranks.size()});
    std::string text = concat(what, ranks.size() == 1 ? " " : "s ");
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) { ++last; }
        append(text, i == 0 ? "" : ", ", ranks[i], last == i ? "" : concat("-", ranks[last]));
        i = last + 1;
    }
    return text;
}

/// Returns "0.123 s".
inline std::string seconds_text(std::uint64_t nanoseconds) {
    const std::uint64_t milliseconds = nanoseconds / 1'000'000;
    return concat(milliseconds / 1000, ".", std::to_string(1000 + milliseconds % 1000).substr(1), " s");
}

/// What ranks wait for, in a sentence.
struct MissingRanks {
    std::vector<std::size_t> ranks;  ///< that others wait for, and that wait for nobody themselves; or all that wait
    std::string text;                ///< "rank 1 has not entered barrier at train.cpp:9 (call 3 over world)"
};

/// Finds out from the records of ranks, of which some may lack, who waits for whom.
class LateRanks {
  public:
    /// A call in which ranks wait.
    struct Wait {
        const recorder::RecentCall* call;
        std::vector<std::size_t> ranks;     ///< that wait in it
        std::vector<std::size_t> needs;     ///< ranks that have not entered it
        std::uint64_t since;                ///< nanoseconds of the longest
        std::vector<std::uint64_t> sinces;  ///< of each of `ranks`
    };

    /// The records must outlive it.
    explicit LateRanks(std::span<const recorder::RankRecord> records) {
        for (const recorder::RankRecord& record : records) {
            ranks_ = std::max({ranks_, record.ranks, record.rank + 1});
        }
        for (const recorder::RankRecord& record : records) {
            for (const recorder::RecentCall& call : record.calls) {
                if (is_message(call.signature.verb) || call.begun == 0) {
                    continue;
                }  // 0: behind others, on a stream
                std::uint64_t& entered = groups_[group_of(call)].entered[record.rank];
                entered = std::max(entered, call.sequence + 1);
            }
        }
        for (const recorder::RankRecord& record : records) {
            for (const recorder::RecentCall& call : record.calls) {
                // The call in which a rank ended with an exception is where it waited.
                const bool ended_in = record.ended && &call == &record.calls.back();
                if (call.done == 0 && call.begun != 0 && (!call.failed || ended_in)) { add_wait(record, call); }
            }
        }
        for (const Wait& wait : waits_) {
            for (const std::size_t rank : wait.needs) {
                if (!waits(rank)) { add(missing_, rank); }
            }
        }
        // First come the waits for ranks that wait for nobody: they are the reason of the others.
        const auto before = [&](const Wait& a, const Wait& b) {
            const bool reason = is_for_missing(a);
            return reason == is_for_missing(b) ? a.since < b.since : reason;
        };
        // Every program has this: std::stable_sort would be a hundred functions more in each.
        for (std::size_t i = 1; i < waits_.size(); ++i) {
            for (std::size_t at = i; at > 0 && before(waits_[at], waits_[at - 1]); --at) {
                std::swap(waits_[at], waits_[at - 1]);
            }
        }
    }

    const std::vector<Wait>& waits() const noexcept { return waits_; }
    /// Returns the ranks that others wait for, and that wait for nobody themselves.
    const std::vector<std::size_t>& missing() const noexcept { return missing_; }

    /// Says it in a line, or in one for each call where all ranks wait for each other; "" where nobody waits.
    MissingRanks find() const {
        MissingRanks found{missing_, {}};
        if (!missing_.empty()) {
            const Wait& first = waits_.front();
            std::vector<std::size_t> needed;
            for (const std::size_t rank : first.needs) {
                if (!waits(rank)) { needed.push_back(rank); }
            }
            found.text = concat(ranks_text(needed), needed.size() == 1 ? " has" : " have", " not entered ",
                                text_of(*first.call));
        } else if (!waits_.empty()) {
            const bool needs = any_that(waits_, [](const Wait& wait) { return !wait.needs.empty(); });
            found.text = needs ? "no rank can go on: each waits for another one"
                               : "all ranks have entered, and not all have finished";
            for (const Wait& wait : waits_) {
                append(found.text, "\n  ", ranks_text(wait.ranks),
                       wait.ranks.size() == 1 ? " waits in " : " wait in ", text_of(*wait.call), " since ",
                       seconds_text(wait.since), wait.needs.empty() ? "" : concat(", for ", ranks_text(wait.needs)));
            }
        }
        if (found.ranks.empty()) {
            for (const Wait& wait : waits_) {
                for (const std::size_t rank : wait.ranks) { add(found.ranks, rank); }
            }
        }
        sort_numbers({found.ranks.data(), found.ranks.size()});
        return found;
    }

    /// Returns the limit of the first rank that waits for longer than limit(rank) nanoseconds, in a call that others
    /// have not entered or, without `entering`, in one that all have; 0 if there is none.
    template <class Limit>
    std::uint64_t passed(bool entering, const Limit& limit) const {
        for (const Wait& wait : waits_) {
            if (wait.needs.empty() == entering) { continue; }
            for (std::size_t i = 0; i < wait.ranks.size(); ++i) {
                const std::uint64_t of_rank = limit(wait.ranks[i]);
                if (wait.sinces[i] > of_rank) { return of_rank; }
            }
        }
        return 0;
    }

    /// Returns "barrier at train.cpp:9 (call 3 over world)".
    static std::string text_of(const recorder::RecentCall& call) {
        const std::string text = describe(call.signature, call.where, call.subject);
        return is_message(call.signature.verb) ? concat(text, " (over ", call.axes, ")")
                                               : concat(text, " (call ", call.sequence, " over ", call.axes, ")");
    }

  private:
    struct Group {
        std::string axes;
        std::vector<std::size_t> members;
        std::vector<std::uint64_t> entered;  // by rank: the last call, plus 1
    };

    static void add(std::vector<std::size_t>& all, std::size_t one) {
        if (!has(all, one)) { all.push_back(one); }
    }
    bool waits(std::size_t rank) const {
        return any_that(waits_, [&](const Wait& wait) { return has(wait.ranks, rank); });
    }
    bool is_for_missing(const Wait& wait) const {
        return any_that(wait.needs, [&](std::size_t rank) { return has(missing_, rank); });
    }
    std::size_t group_of(const recorder::RecentCall& call) {
        const std::vector<std::size_t>& members = call.members ? *call.members : nobody_;
        const Group* const found = first_that(
            groups_, [&](const Group& group) { return group.axes == call.axes && group.members == members; });
        if (found != nullptr) { return static_cast<std::size_t>(found - groups_.data()); }
        groups_.push_back({call.axes, members, std::vector<std::uint64_t>(ranks_)});
        return groups_.size() - 1;
    }
    void add_wait(const recorder::RankRecord& record, const recorder::RecentCall& call) {
        const std::uint64_t since = record.taken - std::min(record.taken, call.given);
        std::vector<std::size_t> needs;
        if (is_message(call.signature.verb)) {
            if (call.members && call.signature.argument < call.members->size()) {
                needs.push_back((*call.members)[call.signature.argument]);
            }
            waits_.push_back({&call, {record.rank}, needs, since, {since}});
            return;
        }
        const std::size_t group = group_of(call);
        for (Wait& known : waits_) {
            if (!is_message(known.call->signature.verb) && known.call->sequence == call.sequence &&
                group_of(*known.call) == group && known.call->signature == call.signature) {
                known.ranks.push_back(record.rank);
                known.sinces.push_back(since);
                known.since = std::max(known.since, since);
                return;
            }
        }
        for (const std::size_t member : groups_[group].members) {
            const std::vector<std::uint64_t>& entered = groups_[group].entered;
            if (member >= entered.size() || entered[member] <= call.sequence) { needs.push_back(member); }
        }
        waits_.push_back({&call, {record.rank}, needs, since, {since}});
    }

    std::size_t ranks_ = 0;
    std::vector<Group> groups_;
    const std::vector<std::size_t> nobody_;
    std::vector<Wait> waits_;
    std::vector<std::size_t> missing_;
};

}  // namespace shardkit::detail
