// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
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

namespace shardkit::recorder {

/// What the records of the ranks say about a call that does not end.
struct MissingRanks {
    std::vector<std::size_t> ranks;  ///< that others wait for, and that wait for nobody themselves; or all that wait
    std::string text;                ///< a few lines for a person
    std::uint64_t entering = 0;      ///< nanoseconds of the longest wait for a rank that has not entered a call
    std::uint64_t finishing = 0;     ///< nanoseconds of the longest wait in a call that all have entered
};

}  // namespace shardkit::recorder

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

/// Finds out from the records of ranks, of which some may lack, who waits for whom.
class WhoIsMissing {
  public:
    explicit WhoIsMissing(std::span<const recorder::RankRecord> records) {
        std::size_t ranks = 0;
        for (const recorder::RankRecord& record : records) {
            ranks = std::max({ranks, record.ranks, record.rank + 1});
        }
        records_.resize(ranks);
        for (const recorder::RankRecord& record : records) { records_[record.rank] = &record; }
        for (const recorder::RankRecord& record : records) {
            for (const recorder::RecentCall& call : record.calls) {
                if (is_message(call)) { continue; }
                const Key key = key_of(call);
                entry_of(made_, key).value.push_back({record.rank, &call});
                if (call.begun == 0) { continue; }  // behind others, on a stream
                std::uint64_t& entered = groups_[key.first].entered[record.rank];
                entered = std::max(entered, call.sequence + 1);
            }
        }
        for (const recorder::RankRecord& record : records) {
            for (const recorder::RecentCall& call : record.calls) {
                // The call in which a rank ended with an exception is where it waited.
                const bool ended_in = record.ended && &call == &record.calls.back();
                if (call.done == 0 && call.begun != 0 && (!call.failed || ended_in)) { add_wait(record.rank, call); }
            }
        }
    }

    recorder::MissingRanks find() {
        recorder::MissingRanks found;
        add_order(found.text);
        std::vector<std::size_t> roots;
        for (const Wait& wait : waits_) {
            for (const std::size_t rank : wait.needs) {
                if (!waits(rank)) { add(roots, rank); }
            }
        }
        // First come the waits for ranks that wait for nobody: they are the reason of the others.
        sort(waits_, [&](const Wait& a, const Wait& b) {
            const bool reason = needs_any(a, roots);
            return reason == needs_any(b, roots) ? a.since < b.since : reason;
        });
        if (!roots.empty()) {
            const Wait& first = waits_.front();
            std::vector<std::size_t> missing;
            for (const std::size_t rank : first.needs) {
                if (!waits(rank)) { missing.push_back(rank); }
            }
            add_line(found.text, ranks_text(missing), " ", missing.size() == 1 ? "has" : "have", " not entered ",
                     text_of(*first.call));
        } else if (!waits_.empty() && !any_that(waits_, [](const Wait& wait) { return !wait.needs.empty(); })) {
            if (found.text.empty()) { found.text = "all ranks have entered, and not all have finished"; }
        } else if (!waits_.empty()) {
            add_line(found.text, "no rank can go on: each waits for another one");
        }
        std::size_t lines = 0;
        for (const Wait& wait : waits_) {
            if (++lines > most_lines) { break; }
            add_line(found.text, "  ", ranks_text(wait.ranks), wait.ranks.size() == 1 ? " waits in " : " wait in ",
                     text_of(*wait.call), " since ", seconds(wait.since),
                     wait.needs.empty() ? "" : concat(", for ", ranks_text(wait.needs)));
        }
        if (lines > most_lines) { add_line(found.text, "  and others wait in other calls"); }
        lines = 0;
        for (const std::size_t rank : roots) {
            if (++lines <= most_lines) { add_line(found.text, "  rank ", rank, " ", state_of(rank)); }
        }
        for (const Wait& wait : waits_) {
            std::uint64_t& longest = wait.needs.empty() ? found.finishing : found.entering;
            longest = std::max(longest, wait.since);
        }
        if (!waits_.empty()) { add_last(*waits_.front().call, found.text); }
        if (found.text.empty()) { found.text = "no call is open: what was called is over"; }
        found.ranks = roots;
        if (roots.empty()) {
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

  private:
    static constexpr std::size_t most_lines = 8;

    /// A collective, the same on all of its ranks: the place of axes and ranks in groups_, and the call's number.
    using Key = std::pair<std::size_t, std::uint64_t>;
    /// What each rank called there.
    using Made = List<std::pair<std::size_t, const recorder::RecentCall*>>;
    struct Group {
        std::string axes;
        std::vector<std::size_t> members;
        std::vector<std::uint64_t> entered{};  // by rank: the last call, plus 1
    };
    struct Wait {
        const recorder::RecentCall* call;
        std::vector<std::size_t> ranks;     // that wait in it
        std::vector<std::size_t> needs;     // ranks that have not entered it
        std::uint64_t since;                // nanoseconds of the longest
        std::vector<std::uint64_t> sinces;  // of each of `ranks`
    };

    static bool is_message(const recorder::RecentCall& call) noexcept {
        return detail::is_message(call.signature.verb);
    }
    Key key_of(const recorder::RecentCall& call) {
        const std::vector<std::size_t>& members = call.members ? *call.members : nobody_;
        const Group* const found = first_that(
            groups_, [&](const Group& group) { return group.axes == call.axes && group.members == members; });
        if (found != nullptr) { return {static_cast<std::size_t>(found - groups_.begin()), call.sequence}; }
        groups_.push_back({call.axes, members, std::vector<std::uint64_t>(records_.size())});
        return {groups_.size() - 1, call.sequence};
    }
    static std::string text_of(const recorder::RecentCall& call) {
        const std::string text = describe(call.signature, call.where, call.subject);
        return is_message(call) ? concat(text, " (over ", call.axes, ")")
                                : concat(text, " (call ", call.sequence, " over ", call.axes, ")");
    }
    static std::string seconds(std::uint64_t nanoseconds) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%.3f s", static_cast<double>(nanoseconds) * 1e-9);
        return digits;
    }
    static void add(std::vector<std::size_t>& all, std::size_t one) {
        if (!has(all, one)) { all.push_back(one); }
    }
    /// Sorts a few elements, and keeps the order of equal ones. Every program has this class: std::stable_sort would
    /// be a hundred functions more in each.
    template <class List, class Less>
    static void sort(List& all, const Less& less) {
        for (std::size_t i = 1; i < all.size(); ++i) {
            for (std::size_t at = i; at > 0 && less(all[at], all[at - 1]); --at) { std::swap(all[at], all[at - 1]); }
        }
    }
    template <class... Pieces>
    [[gnu::always_inline]] static void add_line(std::string& text, const Pieces&... pieces) {
        append(text, text.empty() ? "" : "\n", pieces...);
    }
    static bool needs_any(const Wait& wait, const std::vector<std::size_t>& ranks) {
        return any_that(wait.needs, [&](std::size_t rank) { return has(ranks, rank); });
    }
    bool waits(std::size_t rank) const {
        return any_that(waits_, [&](const Wait& wait) { return has(wait.ranks, rank); });
    }

    void add_wait(std::size_t rank, const recorder::RecentCall& call) {
        const std::uint64_t taken = records_[rank]->taken;
        const std::uint64_t since = taken - std::min(taken, call.given);
        if (is_message(call)) {
            std::vector<std::size_t> peer;
            if (call.members && call.signature.argument < call.members->size()) {
                peer.push_back((*call.members)[call.signature.argument]);
            }
            waits_.push_back({&call, {rank}, peer, since, {since}});
            return;
        }
        for (Wait& known : waits_) {
            if (!is_message(*known.call) && key_of(*known.call) == key_of(call)) {
                known.ranks.push_back(rank);
                known.sinces.push_back(since);
                known.since = std::max(known.since, since);
                return;
            }
        }
        std::vector<std::size_t> needs;
        const Key key = key_of(call);
        for (const std::size_t member : groups_[key.first].members) {
            const std::vector<std::uint64_t>& entered = groups_[key.first].entered;
            if (member >= entered.size() || entered[member] <= call.sequence) { needs.push_back(member); }
        }
        waits_.push_back({&call, {rank}, needs, since, {since}});
    }
    std::string state_of(std::size_t rank) const {
        const recorder::RankRecord* const record = rank < records_.size() ? records_[rank] : nullptr;
        if (record == nullptr) {
            return "has left no record: its process is gone, or was stopped before it could write one";
        }
        if (record->ended) { return record->why.empty() ? "has returned" : concat("has ended: ", record->why); }
        if (record->calls.empty()) { return "has made no call yet: it computes, or is in a loop"; }
        const recorder::RecentCall& last = record->calls.back();
        const std::uint64_t at = std::max(last.given, last.done);
        return concat("makes no call since ", seconds(record->taken - std::min(record->taken, at)),
                      ": it computes, or is in a loop; its last one was ", text_of(last));
    }

    /// Adds the first call in which ranks differ.
    void add_order(std::string& text) const {
        const Made* first = nullptr;
        for (const auto& each : made_) {
            const Made& made = each.value;
            const auto differs = [&](const auto& one) { return !same(*one.second, *made.front().second); };
            if (!any_that(made, differs)) { continue; }
            if (first == nullptr || made.front().second->given < first->front().second->given) { first = &made; }
        }
        if (first == nullptr) { return; }
        List<std::pair<const recorder::RecentCall*, std::vector<std::size_t>>> sides;
        for (const auto& each : *first) {
            const recorder::RecentCall& call = *each.second;
            auto* const side = first_that(sides, [&](const auto& one) { return same(*one.first, call); });
            if (side == nullptr) {
                sides.push_back({&call, {each.first}});
            } else {
                side->second.push_back(each.first);
            }
        }
        sort(sides, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
        const bool few = sides.front().second.size() < sides.back().second.size();
        add_line(text, few ? concat(ranks_text(sides.front().second), " left the order of calls over ",
                                    first->front().second->axes)
                           : concat("the ranks differ in the order of calls over ", first->front().second->axes));
        for (const auto& [call, ranks] : sides) {
            add_line(text, "  ", ranks_text(ranks), " called ", text_of(*call));
        }
    }
    /// Returns whether two ranks' calls are one collective.
    static bool same(const recorder::RecentCall& a, const recorder::RecentCall& b) noexcept {
        Signature as_b = a.signature;
        if (a.signature.verb != Verb::broadcast) { as_b.argument = b.signature.argument; }
        return as_b == b.signature;
    }
    /// Adds the last call that all members had finished, over the ranks of `call`.
    void add_last(const recorder::RecentCall& call, std::string& text) {
        const std::size_t group = key_of(call).first;
        const recorder::RecentCall* last = nullptr;
        for (const auto& each : made_) {
            if (each.key.first != group || each.value.size() < groups_[group].members.size()) { continue; }
            const auto is_open = [](const auto& one) { return one.second->done == 0; };
            if (!any_that(each.value, is_open)) { last = each.value.front().second; }
        }
        if (last != nullptr) { add_line(text, "  the last call that all have finished there: ", text_of(*last)); }
    }

    List<const recorder::RankRecord*> records_;  // by rank; null where there is none
    List<Group> groups_;
    List<Keyed<Key, Made>> made_;  // by key
    const std::vector<std::size_t> nobody_;
    List<Wait> waits_;
};

}  // namespace shardkit::detail

namespace shardkit::recorder {

/// Says in a few lines who waits where and since when, who has not come, who left the order of calls, and which call
/// all had finished. Records of some ranks may lack: then they are named as those that left none.
/// Cost:    the square of the ranks at most, and some milliseconds for 64 of them
inline MissingRanks who_is_missing(const std::vector<RankRecord>& records) {
    return detail::WhoIsMissing({records.data(), records.size()}).find();
}

}  // namespace shardkit::recorder
