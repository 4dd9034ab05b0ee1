// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/rank_state.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/comm/rank_record.hpp>
#include <shardkit/comm/record_files.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/maybe.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::threads::detail {

/// Looks at the ranks' flight recorders: finds ranks that are late, and writes the records. The launching thread uses
/// it, and holds the World's mutex, so that no rank ends meanwhile.
class LateWatch {
  public:
    LateWatch(std::span<const RankState> states, const LaunchOptions& options) : states_(states), options_(options) {
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
    shardkit::detail::Maybe<shardkit::detail::MissingRanks> look() {
        const std::uint32_t asked = shardkit::detail::record_requests.load(std::memory_order_relaxed);
        if (std::exchange(asked_, asked) != asked) { write_all(states_.size(), "asked for"); }
        const auto waits = [&](const RankState& state) {
            return state.fate == Fate::running &&
                   state.journal.waits_longer_than(
                       std::min(nanoseconds(limit(state, true)), nanoseconds(limit(state, false))) / 2);
        };
        if (!shardkit::detail::any_that(states_, waits)) {
            warned_ = false;
            return {};
        }
        const shardkit::detail::LateRanks who = take();
        shardkit::detail::MissingRanks found = who.find();
        // The first limit that a rank's wait has passed, or half of it.
        const auto passed = [&](bool entering, std::uint64_t part) {
            return who.passed(entering,
                              [&](std::size_t rank) { return nanoseconds(limit(states_[rank], entering)) / part; });
        };
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

    shardkit::detail::MissingRanks missing() { return take().find(); }
    /// Writes what `missing` looked at last: before the ranks are told, and go on.
    void write_missing(const std::string& why) noexcept {
        if (options_.record.empty() || std::exchange(written_, true)) { return; }
        try {
            for (recorder::RankRecord& record : taken_) {
                if (record.why.empty()) { record.why = why; }
                recorder::write_record(options_.record, record);
            }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): the error that is told has another reason
    }
    /// Writes the records once, after the failure of rank `rank`.
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
    /// Looks at what the ranks have called.
    shardkit::detail::LateRanks take() {
        taken_ = records(states_.size(), {});
        return shardkit::detail::LateRanks(taken_.span());
    }
    shardkit::detail::List<recorder::RankRecord> records(std::size_t of, const std::string& why) const {
        shardkit::detail::List<recorder::RankRecord> all;
        for (std::size_t rank = 0; rank < states_.size(); ++rank) {
            const RankState& state = states_[rank];
            const char* const fate = state.fate == Fate::running    ? ""
                                     : state.fate == Fate::returned ? "its function has returned"
                                                                    : "its function has failed";
            all.push_back({"threads", rank, states_.size(), rank == of || *fate == '\0' ? why : fate,
                           state.fate != Fate::running, shardkit::detail::TickClock::since_1970(),
                           state.journal.recent_calls(), run_});
        }
        return all;
    }
    void write_all(std::size_t of, const std::string& why) noexcept {
        if (options_.record.empty()) { return; }
        try {
            for (const recorder::RankRecord& record : records(of, why)) {
                recorder::write_record(options_.record, record);
            }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): the error that is told has another reason
    }

    std::span<const RankState> states_;
    const LaunchOptions& options_;
    shardkit::detail::Maybe<shardkit::detail::RecordSignal> signal_;
    std::uint32_t asked_ = shardkit::detail::record_requests.load(std::memory_order_relaxed);
    shardkit::detail::List<recorder::RankRecord> taken_;
    std::uint64_t run_ = shardkit::detail::new_run();
    bool warned_ = false;
    bool written_ = false;
};

}  // namespace shardkit::threads::detail
