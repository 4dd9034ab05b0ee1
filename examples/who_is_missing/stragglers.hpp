// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/recorder/rank_record.hpp>

/// Who lets the others wait, from the flight records of ranks.
namespace flight_records {

namespace sk = shardkit;

/// How long the other ranks waited for one rank, in a step's calls for one purpose.
struct RankWait {
    std::uint32_t step = 0;
    std::size_t rank = 0;
    std::string group;      ///< the calls' purpose, or verb, and their axes: "'blocks.0' gradients over dp"
    std::size_t calls = 0;  ///< in which the others waited for it
    double seconds = 0;     ///< that each of the others waited for it, in the mean
    double share = 0;       ///< of the step's time
};

/// What the records of the ranks say about ranks that come late to their calls.
struct Stragglers {
    std::vector<std::size_t> ranks;       ///< those that are late in most steps
    std::vector<RankWait> waits;          ///< the longest first
    std::vector<std::uint32_t> left_out;  ///< steps of which some record no longer has all calls
    std::size_t steps = 0;                ///< that were counted
    std::string text;                     ///< a few lines for a person
};

/// Finds out from the records of ranks how long they waited for each other.
class FindStragglers {
  public:
    explicit FindStragglers(const std::vector<sk::recorder::RankRecord>& records) : records_(records) {
        for (const sk::recorder::RankRecord& record : records) {
            ranks_ = std::max({ranks_, record.ranks, record.rank + 1});
            one_clock_ = one_clock_ && record.engine == "threads";
        }
        for (const sk::recorder::RankRecord& record : records) { add_calls(record); }
        offsets_.resize(ranks_);
        if (!one_clock_) { find_offsets(); }
    }

    Stragglers find() {
        for (const auto& [key, calls] : groups_) {
            for (const auto& each : calls) { charge(key, each.second); }
        }
        const std::map<std::uint32_t, double> lengths = step_lengths();
        Stragglers found;
        found.left_out.assign(left_out_.begin(), left_out_.end());
        std::map<std::uint32_t, std::vector<double>> shares;  // by step and rank
        for (const auto& [step, length] : lengths) { shares[step].resize(ranks_); }
        for (const auto& [key, wait] : waits_) {
            RankWait made = wait;
            std::tie(made.step, made.rank, made.group) = key;
            const double length = lengths.at(made.step);
            made.share = length > 0 ? made.seconds / length : 0;
            shares[made.step][made.rank] += made.share;
            found.waits.push_back(std::move(made));
        }
        std::sort(found.waits.begin(), found.waits.end(), [](const RankWait& a, const RankWait& b) {
            return std::tie(b.seconds, a.step, a.rank, a.group) < std::tie(a.seconds, b.step, b.rank, b.group);
        });
        found.steps = shares.size();
        name_ranks(shares, found);
        found.text.pop_back();
        return found;
    }

  private:
    /// A rank is named if in three of four steps, and of no fewer than so many, the others wait for it for so large a
    /// share of the step more than for the rank in the middle.
    static constexpr std::size_t least_steps = 4;
    static constexpr double least_share = 0.05;

    /// Axes and ranks; for messages the sender and the receiver.
    struct Key {
        std::string axes;
        std::vector<std::size_t> members;
        bool messages = false;
        friend bool operator<(const Key& a, const Key& b) {
            return std::tie(a.axes, a.members, a.messages) < std::tie(b.axes, b.members, b.messages);
        }
    };
    /// A call on each of its ranks, in the order of the members; null where it is not known.
    using Made = std::vector<const sk::recorder::RecentCall*>;
    using Calls = std::map<std::pair<std::uint32_t, std::uint64_t>, Made>;  // by step and number

    void add_calls(const sk::recorder::RankRecord& record) {
        std::map<std::tuple<Key, bool, std::uint32_t>, std::uint64_t> messages;  // sent or received in a step, so far
        std::uint64_t next = 0;
        std::uint32_t step = 0;
        for (std::size_t i = 0; i < record.calls.size(); ++i) {
            const sk::recorder::RecentCall& call = record.calls[i];
            if (call.number != next) {
                left_out_.insert(call.step);
                if (i > 0) { left_out_.insert(step); }
            }
            next = call.number + 1;
            step = call.step;
            if (!call.members || call.begun == 0) { continue; }
            Key key{call.axes, *call.members, sk::detail::is_message(call.signature.verb)};
            std::uint64_t number = call.sequence;
            if (key.messages) {
                if (call.signature.argument >= key.members.size()) { continue; }
                const std::size_t peer = key.members[call.signature.argument];
                const bool sends = call.signature.verb == sk::Verb::send;
                key.members = {sends ? record.rank : peer, sends ? peer : record.rank};
                number = messages[{key, sends, call.step}]++;
                if (peer == record.rank) { continue; }
            }
            const auto place = std::find(key.members.begin(), key.members.end(), record.rank);
            if (place == key.members.end()) { continue; }
            Made& made = groups_[key][{call.step, number}];
            made.resize(key.members.size());
            made[static_cast<std::size_t>(place - key.members.begin())] = &call;
        }
    }
    static bool is_whole(const Made& made) { return std::find(made.begin(), made.end(), nullptr) == made.end(); }

    /// Clocks of processes differ by an unknown time. What ranks call together ends on all of them at one time, but
    /// for a broadcast: the median of the differences between two ranks' ends is that of their clocks.
    void find_offsets() {
        std::vector<bool> known(ranks_);
        for (std::size_t first = 0; first < ranks_; ++first) {
            if (known[first]) { continue; }
            known[first] = true;
            for (bool more = true; std::exchange(more, false);) {
                for (const auto& [key, calls] : groups_) {
                    const auto& members = key.members;
                    const auto base =
                        std::find_if(members.begin(), members.end(), [&](std::size_t rank) { return known[rank]; });
                    if (key.messages || base == members.end()) { continue; }
                    for (std::size_t m = 0; m < members.size(); ++m) {
                        if (known[members[m]]) { continue; }
                        const auto apart = median_apart(calls, m, static_cast<std::size_t>(base - members.begin()));
                        if (!apart.first) { continue; }
                        offsets_[members[m]] = offsets_[*base] + apart.second;
                        known[members[m]] = more = true;
                    }
                }
            }
        }
    }
    static std::pair<bool, double> median_apart(const Calls& calls, std::size_t one, std::size_t other) {
        std::vector<double> apart;
        for (const auto& each : calls) {
            const sk::recorder::RecentCall* const a = each.second[one];
            const sk::recorder::RecentCall* const b = each.second[other];
            if (a == nullptr || b == nullptr || a->done == 0 || b->done == 0) { continue; }
            if (a->signature.verb == sk::Verb::broadcast) { continue; }
            apart.push_back(a->done > b->done ? static_cast<double>(a->done - b->done)
                                              : -static_cast<double>(b->done - a->done));
        }
        if (apart.empty()) { return {false, 0}; }
        const auto middle = apart.begin() + static_cast<std::ptrdiff_t>(apart.size() / 2);
        std::nth_element(apart.begin(), middle, apart.end());
        return {true, *middle};
    }

    /// While some ranks of a call wait and others have not come, each of these is charged an equal part of the time
    /// that is waited.
    void charge(const Key& key, const Made& made) {
        if (!is_whole(made) || made.size() < 2 || left_out_.count(made.front()->step) > 0) { return; }
        std::vector<std::pair<double, std::size_t>> came;
        // Times since 1970 have more digits than a double.
        const std::uint64_t base = made.front()->begun;
        for (std::size_t m = 0; m < made.size(); ++m) {
            const double at = static_cast<double>(static_cast<std::int64_t>(made[m]->begun - base));
            came.emplace_back(at - offsets_[key.members[m]], key.members[m]);
        }
        std::sort(came.begin(), came.end());
        const sk::recorder::RecentCall& call = *made.front();
        const std::string purpose = call.subject.empty() ? std::string(name(call.signature.verb)) : call.subject;
        const std::string text = sk::detail::concat(purpose, " over ", call.axes);
        const auto others = static_cast<double>(came.size() - 1);
        double each = 0;  // what each of the ranks that have not come is charged by now
        for (std::size_t i = 1; i < came.size(); ++i) {
            each +=
                (came[i].first - came[i - 1].first) * static_cast<double>(i) / static_cast<double>(came.size() - i);
            RankWait& wait = waits_[{call.step, came[i].second, text}];
            ++wait.calls;
            wait.seconds += each / others * 1e-9;
        }
    }

    /// Returns the seconds of each step, on the rank where it took longest: from the end of its last call of the step
    /// before to that of this one.
    std::map<std::uint32_t, double> step_lengths() const {
        std::map<std::uint32_t, double> lengths;
        for (const sk::recorder::RankRecord& record : records_) {
            std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> spans;  // first given, last done
            for (const sk::recorder::RecentCall& call : record.calls) {
                auto& span = spans.try_emplace(call.step, call.given, call.given).first->second;
                span.second = std::max(span.second, call.done);
            }
            for (auto span = spans.begin(); span != spans.end(); ++span) {
                if (left_out_.count(span->first) > 0) { continue; }
                std::uint64_t begin = span->second.first;
                if (span != spans.begin() && std::prev(span)->first + 1 == span->first) {
                    begin = std::min(begin, std::prev(span)->second.second);
                }
                double& longest = lengths[span->first];
                longest = std::max(longest, static_cast<double>(span->second.second - begin) * 1e-9);
            }
        }
        return lengths;
    }

    void name_ranks(const std::map<std::uint32_t, std::vector<double>>& shares, Stragglers& found) const {
        std::vector<std::vector<double>> more(ranks_);  // of each rank, in each step
        for (const auto& each : shares) {
            std::vector<double> sorted = each.second;
            std::sort(sorted.begin(), sorted.end());
            const double middle = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];
            for (std::size_t rank = 0; rank < ranks_; ++rank) { more[rank].push_back(each.second[rank] - middle); }
        }
        const std::size_t quarter = shares.size() / 4;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            std::sort(more[rank].begin(), more[rank].end());
            if (shares.size() < least_steps || more[rank][quarter] < least_share) { continue; }
            found.ranks.push_back(rank);
            double seconds = 0;
            double share = 0;
            for (const RankWait& wait : found.waits) {
                if (wait.rank != rank) { continue; }
                seconds += wait.seconds;
                share += wait.share / static_cast<double>(shares.size());
            }
            char digits[80];
            std::snprintf(digits, sizeof digits, "%.3f s in %zu steps, %.0f %% of them", seconds, shares.size(),
                          100 * share);
            sk::detail::append(found.text, "the others waited for rank ", rank, " for ", digits, "\n");
        }
        if (found.ranks.empty()) {
            found.text += shares.size() < least_steps
                              ? sk::detail::concat(shares.size(), " whole steps are too few to name a late rank\n")
                              : sk::detail::concat("no rank is late in most of ", shares.size(), " steps\n");
        }
        if (!left_out_.empty()) {
            sk::detail::append(found.text, "not counted, as a rank's record no longer has all of their calls: ",
                               sk::detail::ranks_text({left_out_.begin(), left_out_.end()}, "step"), "\n");
        }
    }

    const std::vector<sk::recorder::RankRecord>& records_;
    std::size_t ranks_ = 0;
    bool one_clock_ = true;
    std::map<Key, Calls> groups_;
    std::set<std::uint32_t> left_out_;
    std::vector<double> offsets_;  // of each rank's clock, in nanoseconds
    std::map<std::tuple<std::uint32_t, std::size_t, std::string>, RankWait> waits_;
};

/// Finds out how long each rank let the others wait in the calls of each step (Rank::set_step) and purpose, and
/// which ranks do so in three of four steps for a twentieth of the step or more; fewer than four steps name nobody.
/// Records are those of a run, of any engine: in memory, or read from files. A call counts if all of its ranks have
/// left a record of it, in a step of which no record lacks a call. The clocks of processes are made comparable by the
/// common ends of calls; they should keep their distance. On `nccl` a rank comes to a call when its host makes it.
/// Cost:    a tenth of a second for 64 records
inline Stragglers find_stragglers(const std::vector<sk::recorder::RankRecord>& records) {
    return FindStragglers(records).find();
}

}  // namespace flight_records
