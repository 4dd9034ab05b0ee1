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
#include <shardkit/comm/rank_record.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>

namespace flight_records {

namespace sk = shardkit;

/// What the records of the ranks say about a call that does not end.
struct MissingRanks {
    std::vector<std::size_t> ranks;  ///< that others wait for, and that wait for nobody themselves; or all that wait
    std::string text;                ///< a few lines for a person
    std::uint64_t entering = 0;      ///< nanoseconds of the longest wait for a rank that has not entered a call
    std::uint64_t finishing = 0;     ///< nanoseconds of the longest wait in a call that all have entered
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
        const sk::detail::MissingRanks late = late_.find();
        MissingRanks found{late.ranks, {}};
        const std::vector<Wait>& waits = late_.waits();
        add_order(found.text);
        const std::string first = late.text.substr(0, late.text.find('\n'));
        const bool all_entered = late_.missing().empty() && !waits.empty() && waits.front().needs.empty();
        if (!first.empty() && (!all_entered || found.text.empty())) { add_line(found.text, first); }
        for (std::size_t i = 0; i < std::min(waits.size(), most_lines); ++i) {
            const Wait& wait = waits[i];
            add_line(found.text, "  ", sk::detail::ranks_text(wait.ranks),
                     wait.ranks.size() == 1 ? " waits in " : " wait in ", sk::detail::LateRanks::text_of(*wait.call),
                     " since ", seconds(wait.since),
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
    using Wait = sk::detail::LateRanks::Wait;
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
                                  ": it computes, or is in a loop; its last one was ",
                                  sk::detail::LateRanks::text_of(last));
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
            add_line(text, "  ", sk::detail::ranks_text(ranks), " called ", sk::detail::LateRanks::text_of(*call));
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
            add_line(text, "  the last call that all have finished there: ", sk::detail::LateRanks::text_of(*last));
        }
    }

    const std::vector<sk::recorder::RankRecord>& records_;
    sk::detail::LateRanks late_;
    std::map<std::pair<Group, std::uint64_t>, Made> made_;
};

/// Says in a few lines who waits where and since when, who has not come, who left the order of calls, and which call
/// all had finished. Records of some ranks may lack: then they are named as those that left none.
inline MissingRanks who_is_missing(const std::vector<sk::recorder::RankRecord>& records) {
    return Diagnosis(records).find();
}

}  // namespace flight_records
