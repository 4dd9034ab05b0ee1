// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/recorder/rank_record.hpp>

namespace flight_records {

namespace sk = shardkit;

/// What the records of the ranks say about a call that does not end.
struct MissingRanks {
    std::vector<std::size_t> ranks;  ///< that others wait for, and that wait for nobody themselves; or all that wait
    std::string text;                ///< a few lines for a person
    std::uint64_t entering = 0;      ///< nanoseconds of the longest wait for a rank that has not entered a call
    std::uint64_t finishing = 0;     ///< nanoseconds of the longest wait in a call that all have entered
};

/// Finds out from the records of ranks, of which some may lack, who waits for whom.
class LateRanks {
  public:
    /// A call in which ranks wait.
    struct Wait {
        const sk::recorder::RecentCall* call;
        std::vector<std::size_t> ranks;  ///< that wait in it
        std::vector<std::size_t> needs;  ///< ranks that have not entered it
        std::uint64_t since;             ///< nanoseconds of the longest
    };

    /// The records must outlive it.
    explicit LateRanks(const std::vector<sk::recorder::RankRecord>& records) {
        for (const sk::recorder::RankRecord& record : records) {
            ranks_ = std::max({ranks_, record.ranks, record.rank + 1});
        }
        for (const sk::recorder::RankRecord& record : records) {
            for (const sk::recorder::RecentCall& call : record.calls) {
                if (sk::detail::is_message(call.signature.verb) || call.begun == 0) {
                    continue;
                }  // 0: behind others, on a stream
                std::uint64_t& entered = groups_[group_of(call)].entered[record.rank];
                entered = std::max(entered, call.sequence + 1);
            }
        }
        for (const sk::recorder::RankRecord& record : records) {
            for (const sk::recorder::RecentCall& call : record.calls) {
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
        std::stable_sort(waits_.begin(), waits_.end(), [&](const Wait& a, const Wait& b) {
            const bool reason = is_for_missing(a);
            return reason == is_for_missing(b) ? a.since < b.since : reason;
        });
    }

    const std::vector<Wait>& waits() const noexcept { return waits_; }
    /// Returns the ranks that others wait for, and that wait for nobody themselves.
    const std::vector<std::size_t>& missing() const noexcept { return missing_; }

    /// Returns the ranks that others wait for and that wait for nobody themselves, or else all that wait.
    std::vector<std::size_t> ranks() const {
        std::vector<std::size_t> ranks = missing_;
        for (std::size_t i = 0; missing_.empty() && i < waits_.size(); ++i) {
            for (const std::size_t rank : waits_[i].ranks) { add(ranks, rank); }
        }
        std::sort(ranks.begin(), ranks.end());
        return ranks;
    }
    /// Says in a line who has not come; "" where nobody waits.
    std::string headline() const {
        if (waits_.empty()) { return {}; }
        const auto needs = [](const Wait& wait) { return !wait.needs.empty(); };
        if (missing_.empty()) {
            return std::any_of(waits_.begin(), waits_.end(), needs)
                       ? "no rank can go on: each waits for another one"
                       : "all ranks have entered, and not all have finished";
        }
        const Wait& first = waits_.front();
        std::vector<std::size_t> needed;
        for (const std::size_t rank : first.needs) {
            if (!waits(rank)) { needed.push_back(rank); }
        }
        return sk::detail::concat(sk::detail::ranks_text(needed), needed.size() == 1 ? " has" : " have",
                                  " not entered ", sk::detail::text_of(*first.call));
    }

  private:
    struct Group {
        std::string axes;
        std::vector<std::size_t> members;
        std::vector<std::uint64_t> entered;  // by rank: the last call, plus 1
    };

    static bool has(const std::vector<std::size_t>& all, std::size_t one) {
        return std::find(all.begin(), all.end(), one) != all.end();
    }
    static void add(std::vector<std::size_t>& all, std::size_t one) {
        if (!has(all, one)) { all.push_back(one); }
    }
    bool waits(std::size_t rank) const {
        return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) { return has(wait.ranks, rank); });
    }
    bool is_for_missing(const Wait& wait) const {
        return std::any_of(wait.needs.begin(), wait.needs.end(),
                           [&](std::size_t rank) { return has(missing_, rank); });
    }
    std::size_t group_of(const sk::recorder::RecentCall& call) {
        const std::vector<std::size_t>& members = call.members ? *call.members : nobody_;
        const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
            return group.axes == call.axes && group.members == members;
        });
        if (found != groups_.end()) { return static_cast<std::size_t>(found - groups_.begin()); }
        groups_.push_back({call.axes, members, std::vector<std::uint64_t>(ranks_)});
        return groups_.size() - 1;
    }
    void add_wait(const sk::recorder::RankRecord& record, const sk::recorder::RecentCall& call) {
        const std::uint64_t since = record.taken - std::min(record.taken, call.given);
        std::vector<std::size_t> needs;
        if (sk::detail::is_message(call.signature.verb)) {
            if (call.members && call.signature.argument < call.members->size()) {
                needs.push_back((*call.members)[call.signature.argument]);
            }
            waits_.push_back({&call, {record.rank}, needs, since});
            return;
        }
        const std::size_t group = group_of(call);
        for (Wait& known : waits_) {
            if (!sk::detail::is_message(known.call->signature.verb) && known.call->sequence == call.sequence &&
                group_of(*known.call) == group && known.call->signature == call.signature) {
                known.ranks.push_back(record.rank);
                known.since = std::max(known.since, since);
                return;
            }
        }
        for (const std::size_t member : groups_[group].members) {
            const std::vector<std::uint64_t>& entered = groups_[group].entered;
            if (member >= entered.size() || entered[member] <= call.sequence) { needs.push_back(member); }
        }
        waits_.push_back({&call, {record.rank}, needs, since});
    }

    std::size_t ranks_ = 0;
    std::vector<Group> groups_;
    const std::vector<std::size_t> nobody_;
    std::vector<Wait> waits_;
    std::vector<std::size_t> missing_;
};

/// Finds out from the records of ranks, of which some may lack, who waits for whom, and who did what instead.
class Diagnosis {
  public:
    explicit Diagnosis(const std::vector<sk::recorder::RankRecord>& records) : records_(records), late_(records) {
        for (const sk::recorder::RankRecord& record : records) {
            for (const Call& call : record.calls) {
                if (sk::detail::is_message(call.signature.verb)) { continue; }
                made_[{group_of(call), call.sequence}].emplace_back(record.rank, &call);
            }
        }
    }

    MissingRanks find() const {
        MissingRanks found{late_.ranks(), {}};
        const std::vector<Wait>& waits = late_.waits();
        add_order(found.text);
        const std::string first = late_.headline();
        const bool all_entered = late_.missing().empty() && !waits.empty() && waits.front().needs.empty();
        if (!first.empty() && (!all_entered || found.text.empty())) { add_line(found.text, first); }
        for (std::size_t i = 0; i < std::min(waits.size(), most_lines); ++i) {
            const Wait& wait = waits[i];
            add_line(found.text, "  ", sk::detail::ranks_text(wait.ranks),
                     wait.ranks.size() == 1 ? " waits in " : " wait in ", sk::detail::text_of(*wait.call), " since ",
                     seconds(wait.since),
                     wait.needs.empty() ? "" : sk::detail::concat(", for ", sk::detail::ranks_text(wait.needs)));
        }
        if (waits.size() > most_lines) { add_line(found.text, "  and others wait in other calls"); }
        for (std::size_t i = 0; i < std::min(late_.missing().size(), most_lines); ++i) {
            add_line(found.text, "  rank ", late_.missing()[i], " ", state_of(late_.missing()[i]));
        }
        for (const Wait& wait : waits) {
            std::uint64_t& longest = wait.needs.empty() ? found.finishing : found.entering;
            longest = std::max(longest, wait.since);
        }
        if (!waits.empty()) { add_last(*waits.front().call, found.text); }
        if (found.text.empty()) { found.text = "no call is open: what was called is over"; }
        return found;
    }

  private:
    using Call = sk::recorder::RecentCall;
    using Wait = LateRanks::Wait;
    using Group = std::pair<std::string, std::vector<std::size_t>>;  // axes and members
    /// What each rank called as one collective.
    using Made = std::vector<std::pair<std::size_t, const Call*>>;
    static constexpr std::size_t most_lines = 8;

    static Group group_of(const Call& call) {
        return {call.axes, call.members ? *call.members : std::vector<std::size_t>{}};
    }
    static std::string seconds(std::uint64_t nanoseconds) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%.3f s", static_cast<double>(nanoseconds) * 1e-9);
        return digits;
    }
    template <class... Pieces>
    static void add_line(std::string& text, const Pieces&... pieces) {
        sk::detail::append(text, text.empty() ? "" : "\n", pieces...);
    }
    std::string state_of(std::size_t rank) const {
        const auto record =
            std::find_if(records_.begin(), records_.end(), [&](const auto& each) { return each.rank == rank; });
        if (record == records_.end()) {
            return "has left no record: its process is gone, or was stopped before it could write one";
        }
        if (record->ended) { return record->why.empty() ? "has returned" : "has ended: " + record->why; }
        if (record->calls.empty()) { return "has made no call yet: it computes, or is in a loop"; }
        const Call& last = record->calls.back();
        const std::uint64_t at = std::max(last.given, last.done);
        return sk::detail::concat("makes no call since ", seconds(record->taken - std::min(record->taken, at)),
                                  ": it computes, or is in a loop; its last one was ", sk::detail::text_of(last));
    }
    /// Whether two ranks' calls are one collective.
    static bool same(const Call& a, const Call& b) {
        sk::Signature as_b = a.signature;
        if (a.signature.verb != sk::Verb::broadcast) { as_b.argument = b.signature.argument; }
        return as_b == b.signature;
    }
    /// Adds the first call in which ranks differ.
    void add_order(std::string& text) const {
        const Made* first = nullptr;
        for (const auto& [key, made] : made_) {
            const Call& front = *made.front().second;
            const auto differs = [&](const auto& one) { return !same(*one.second, front); };
            if (std::none_of(made.begin(), made.end(), differs)) { continue; }
            if (first == nullptr || front.given < first->front().second->given) { first = &made; }
        }
        if (first == nullptr) { return; }
        std::vector<std::pair<const Call*, std::vector<std::size_t>>> sides;
        for (const auto& [rank, call] : *first) {
            const auto side = std::find_if(sides.begin(), sides.end(),
                                           [&call = call](const auto& one) { return same(*one.first, *call); });
            if (side == sides.end()) {
                sides.push_back({call, {rank}});
            } else {
                side->second.push_back(rank);
            }
        }
        std::stable_sort(sides.begin(), sides.end(),
                         [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
        const std::string& axes = first->front().second->axes;
        if (sides.front().second.size() < sides.back().second.size()) {
            add_line(text, sk::detail::ranks_text(sides.front().second), " left the order of calls over ", axes);
        } else {
            add_line(text, "the ranks differ in the order of calls over ", axes);
        }
        for (const auto& [call, ranks] : sides) {
            add_line(text, "  ", sk::detail::ranks_text(ranks), " called ", sk::detail::text_of(*call));
        }
    }
    /// Adds the last call that all members had finished, over the ranks of `call`.
    void add_last(const Call& call, std::string& text) const {
        const Call* last = nullptr;
        for (const auto& [key, made] : made_) {
            if (key.first != group_of(call) || made.size() < key.first.second.size()) { continue; }
            const auto is_open = [](const auto& one) { return one.second->done == 0; };
            if (std::none_of(made.begin(), made.end(), is_open)) { last = made.front().second; }
        }
        if (last != nullptr) {
            add_line(text, "  the last call that all have finished there: ", sk::detail::text_of(*last));
        }
    }

    const std::vector<sk::recorder::RankRecord>& records_;
    LateRanks late_;
    std::map<std::pair<Group, std::uint64_t>, Made> made_;
};

/// Says in a few lines who waits where and since when, who has not come, who left the order of calls, and which call
/// all had finished. Records of some ranks may lack: then they are named as those that left none.
inline MissingRanks who_is_missing(const std::vector<sk::recorder::RankRecord>& records) {
    return Diagnosis(records).find();
}

}  // namespace flight_records
