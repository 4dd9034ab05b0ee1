// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/rank_state.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/detail/ticks.hpp>
#include <shardkit/recorder/rank_record.hpp>
#include <shardkit/recorder/record_files.hpp>

namespace shardkit::threads::detail {

/// Detects that every running rank waits for another one, for example because two ranks called verbs of two
/// communicators in different orders.
///
/// Two checks decide. If each rank sleeps in the same wait at both of them, and its word has still not reached its
/// target at the second one, then all of them slept in between, and no rank was left to wake another. The same holds
/// for the threads of its streams, which may also be idle. A rank that computes is never part of a deadlock.
class DeadlockWatch {
  public:
    explicit DeadlockWatch(std::span<const RankState> states) : states_(states), seen_(states.size()) {}

    /// Checks once. Returns whether all ranks wait for each other.
    /// @pre the caller holds the World's mutex, so that no rank ends meanwhile
    bool look() {
        bool all_stuck = true;
        bool unchanged = true;
        for (std::size_t rank = 0; rank < states_.size(); ++rank) {
            if (states_[rank].fate != Fate::running) { continue; }
            const std::uint64_t progress = states_[rank].progress();
            all_stuck = all_stuck && states_[rank].stuck();
            unchanged = unchanged && progress == seen_[rank];
            seen_[rank] = progress;
        }
        const bool certain = all_stuck && unchanged && was_stuck_;
        was_stuck_ = all_stuck;
        return certain;
    }

  private:
    std::span<const RankState> states_;
    std::vector<std::uint64_t> seen_;
    bool was_stuck_ = false;
};

/// Looks at the ranks' flight recorders: finds ranks that are late, and writes the records. The launching thread uses
/// it, and holds the World's mutex, so that no rank ends meanwhile.
class LateWatch {
  public:
    [[gnu::cold]] LateWatch(std::span<const RankState> states, const LaunchOptions& options)
        : states_(states), options_(options) {
        if (options.record.empty()) { return; }
        signal_.emplace();
        for (std::size_t rank = 0; rank < states.size(); ++rank) {
            std::remove(recorder::record_file(options.record, rank).c_str());
        }
    }

    /// Returns how long it may not be asked: a second at most, as a rank may set a Deadline meanwhile.
    std::chrono::milliseconds interval() const noexcept {
        auto shortest = std::chrono::milliseconds(options_.record.empty() ? 4000 : 200);
        for (const RankState& state : states_) {
            shortest = std::min({shortest, limit(state, true), limit(state, false)});
        }
        return std::max(shortest / 4, std::chrono::milliseconds(1));
    }
    /// Checks once. Returns who is missing when a timeout has passed.
    [[gnu::cold]] std::optional<shardkit::detail::MissingRanks> look() {
        const std::uint32_t asked = shardkit::detail::record_requests.load(std::memory_order_relaxed);
        if (std::exchange(asked_, asked) != asked) { write_all(states_.size(), "asked for"); }
        const auto waits = [&](const RankState& state) {
            return state.fate == Fate::running &&
                   state.journal.recorder().waits_longer_than(
                       std::min(nanoseconds(limit(state, true)), nanoseconds(limit(state, false))) / 2);
        };
        if (!shardkit::detail::any_that(states_, waits)) {
            warned_ = false;
            return {};
        }
        shardkit::detail::MissingRanks found = missing();
        for (const bool entering : {true, false}) {
            const std::uint64_t over = passed(entering, 1);
            if (over == 0) { continue; }
            found.text = shardkit::detail::concat("not every rank has ", entering ? "entered" : "finished",
                                                  " a call within ", over / 1'000'000, " ms: ", found.text);
            if (options_.on_late) { options_.on_late(found.text); }
            return found;
        }
        if ((passed(true, 2) > 0 || passed(false, 2) > 0) && !std::exchange(warned_, true) && options_.on_late) {
            options_.on_late(shardkit::detail::concat("late: ", found.text));
        }
        return {};
    }

    /// Says which ranks have not entered the calls in which others wait: those that wait for nobody themselves, or
    /// all where each waits for another one.
    [[gnu::cold]] shardkit::detail::MissingRanks missing() {
        find_waits();
        shardkit::detail::MissingRanks found;
        for (const bool all : {false, true}) {
            for (const Wait& wait : waits_) {
                std::vector<std::size_t> late;
                for (const std::size_t rank : wait.needs) {
                    const auto is_of = [rank](const Wait& other) { return other.rank == rank; };
                    if (all || !shardkit::detail::any_that(waits_, is_of)) { late.push_back(rank); }
                }
                if (late.empty()) { continue; }
                const bool message = shardkit::detail::is_message(wait.call.signature.verb);
                const std::string line = shardkit::detail::concat(
                    shardkit::detail::ranks_text(late), late.size() == 1 ? " has" : " have",
                    message ? " not answered " : " not entered ", shardkit::detail::text_of(wait.call));
                if (found.text.find(line) != std::string::npos) { continue; }
                found.text += (found.text.empty() ? "" : ", ") + line;
                found.ranks.insert(found.ranks.end(), late.begin(), late.end());
            }
            if (!found.ranks.empty()) {
                if (all) { found.text.insert(0, "no rank can go on: each waits for another one: "); }
                return found;
            }
        }
        for (const Wait& wait : waits_) {
            const std::string call = shardkit::detail::text_of(wait.call);
            found.ranks.push_back(wait.rank);
            if (found.text.find(call) != std::string::npos) { continue; }
            found.text += (found.text.empty() ? "all ranks have entered, and not all have finished: " : ", ") + call;
        }
        return found;
    }
    /// Writes the records once, because of rank `rank`, or of all that have not ended.
    void write(std::size_t rank, const std::string& why) noexcept {
        if (!std::exchange(written_, true)) { write_all(rank, why); }
    }

  private:
    static std::uint64_t nanoseconds(std::chrono::milliseconds time) noexcept {
        return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
    }
    /// Returns how long the rank waits now for ranks that have not entered a call, or in one that all have entered.
    std::chrono::milliseconds limit(const RankState& state, bool entering) const noexcept {
        return state.journal.limit(entering ? options_.timeout : options_.finish_timeout);
    }
    /// A call in which a rank waits, and the ranks that it waits for: those that have not entered it.
    struct Wait {
        std::size_t rank;
        recorder::RecentCall call;
        std::uint64_t since;  ///< nanoseconds
        std::vector<std::size_t> needs;
    };
    /// Returns whether a rank that made these calls has entered another one's collective. Those that stand behind
    /// others on a stream are not entered.
    [[gnu::cold]] static bool have_entered(const std::vector<recorder::RecentCall>& calls,
                                           const recorder::RecentCall& collective) {
        return shardkit::detail::any_that(calls, [&](const recorder::RecentCall& call) {
            return call.begun != 0 && call.sequence >= collective.sequence &&
                   !shardkit::detail::is_message(call.signature.verb) && call.axes == collective.axes &&
                   *call.members == *collective.members;
        });
    }
    [[gnu::cold]] void find_waits() {
        const std::uint64_t now = shardkit::detail::TickClock::since_1970();
        shardkit::detail::List<std::vector<recorder::RecentCall>> calls;
        for (const RankState& state : states_) { calls.push_back(state.journal.recorder().recent_calls()); }
        waits_.clear();
        for (std::size_t rank = 0; rank < calls.size(); ++rank) {
            for (const recorder::RecentCall& call : calls[rank]) {
                if (call.begun == 0 || call.done != 0 || call.failed) { continue; }
                std::vector<std::size_t> needs;
                if (shardkit::detail::is_message(call.signature.verb)) {
                    needs.push_back((*call.members)[call.signature.argument]);
                } else {
                    for (const std::size_t member : *call.members) {
                        if (!have_entered(calls[member], call)) { needs.push_back(member); }
                    }
                }
                waits_.push_back({rank, call, now - std::min(now, call.given), needs});
            }
        }
    }
    /// Returns a part of the first limit that a wait has passed: for ranks that have not entered the call, or where
    /// all have; 0 if there is none.
    std::uint64_t passed(bool entering, std::uint64_t part) const noexcept {
        const Wait* const wait = shardkit::detail::first_that(waits_, [&](const Wait& each) {
            return each.needs.empty() != entering &&
                   each.since > nanoseconds(limit(states_[each.rank], entering)) / part;
        });
        return wait == nullptr ? 0 : nanoseconds(limit(states_[wait->rank], entering)) / part;
    }
    [[gnu::cold]] void write_all(std::size_t of, const std::string& why) noexcept {
        if (options_.record.empty()) { return; }
        try {
            shardkit::detail::List<recorder::RankRecord> records;  // of one time, as far as may be
            for (const RankState& state : states_) {
                const std::size_t rank = records.size();
                const char* const fate = state.fate == Fate::running    ? ""
                                         : state.fate == Fate::returned ? "its function has returned"
                                                                        : "its function has failed";
                records.push_back({"threads", rank, states_.size(), rank == of || *fate == '\0' ? why : fate,
                                   state.fate != Fate::running, shardkit::detail::TickClock::since_1970(),
                                   state.journal.recorder().recent_calls(), run_});
            }
            for (const recorder::RankRecord& record : records) { recorder::write_record(options_.record, record); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): the error that is told has another reason
    }

    std::span<const RankState> states_;
    const LaunchOptions& options_;
    std::optional<shardkit::detail::RecordSignal> signal_;
    std::uint32_t asked_ = shardkit::detail::record_requests.load(std::memory_order_relaxed);
    shardkit::detail::List<Wait> waits_;
    std::uint64_t run_ = shardkit::detail::new_run();
    bool warned_ = false;
    bool written_ = false;
};

}  // namespace shardkit::threads::detail
