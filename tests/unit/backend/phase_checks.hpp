// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/verbs/barrier.hpp>

#include "rank_checks.hpp"

namespace phase_checks {

using std::chrono::milliseconds;

/// The time that ranks wait, and what a late one takes.
inline constexpr milliseconds brief{rank_checks::sanitized ? 600 : 150};
inline constexpr milliseconds late = 2 * brief;

/// Rank 1 comes late to a call.
template <class Rank>
void meet(Rank& rank, milliseconds lateness) {
    if (rank.rank() == 1) { std::this_thread::sleep_for(lateness); }
    shardkit::barrier(rank.world(), rank.communication_stream());
    rank.synchronize();
}

/// A Deadline replaces the engine's time in its scope alone, by a longer one or by a shorter one.
/// @param error_of  error_of(time, f) runs f(rank) on some ranks of an engine that wait for so long, and returns the
///                  error of rank 0; empty if there is none
template <class ErrorOf>
void check_deadlines(const ErrorOf& error_of) {
    CHECK(error_of(brief, [](auto& rank) {
              const auto patient = rank.deadline(std::chrono::minutes(1));
              { const auto more_patient = rank.deadline(std::chrono::minutes(2)); }
              meet(rank, late);
          }) == "");
    const std::string within = shardkit::detail::concat(brief.count(), " ms");
    const std::string behind = error_of(brief, [](auto& rank) {
        { const auto patient = rank.deadline(std::chrono::minutes(1)); }
        meet(rank, late);
    });
    CAPTURE(behind);
    CHECK(rank_checks::contains(behind, within));
    const std::string shorter = error_of(std::chrono::minutes(1), [](auto& rank) {
        const auto impatient = rank.deadline(brief);
        meet(rank, late);
    });
    CAPTURE(shorter);
    CHECK(rank_checks::contains(shorter, within));
    const std::string refused = error_of(brief, [](auto& rank) { const auto none = rank.deadline(milliseconds(0)); });
    CAPTURE(refused);
    CHECK(rank_checks::contains(refused, "deadline: 0 ms, expected at least 1"));
    CHECK(rank_checks::contains(refused, "phase_checks.hpp:"));
}

}  // namespace phase_checks
