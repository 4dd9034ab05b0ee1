// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace planted {

/// What goes wrong on a rank.
enum class FaultKind : std::uint8_t {
    delay,         ///< the rank waits before it goes on
    error,         ///< the rank throws a PlantedFault
    leave,         ///< the rank's function returns without an error
    hang,          ///< the rank makes no call any more, and returns when all ranks of its process have ended
    kill,          ///< SIGKILL ends the rank's process
    wrong_data,    ///< one bit of what the call delivers to the rank is flipped
    out_of_memory  ///< a buffer throws std::bad_alloc
};

/// The names of the kinds, in their order.
inline constexpr std::array<std::string_view, 7> fault_names{"delay", "error",      "leave",        "hang",
                                                             "kill",  "wrong_data", "out_of_memory"};

/// Returns the name of a kind, "wrong_data".
constexpr std::string_view name(FaultKind kind) noexcept { return fault_names[static_cast<std::size_t>(kind)]; }

/// One fault of one rank.
struct Fault {
    std::size_t rank = 0;  ///< its number in the world
    FaultKind kind = FaultKind::error;
    /// The number of the rank's call, over all its communicators, behind which it strikes, from 0; of out_of_memory
    /// the number of its buffer. wrong_data strikes the first call from there on that delivers something to the rank.
    std::uint64_t at = 0;
    std::uint64_t value = 0;  ///< of delay: milliseconds; of wrong_data: which bit, modulo the number of them

    friend bool operator==(const Fault&, const Fault&) = default;
};

/// The faults of a run.
using FaultPlan = std::vector<Fault>;

/// Returns a plan as text, "1:error:17:0 2:delay:3:20": rank, kind, at, value. `plan_of` reads it.
inline std::string text_of(const FaultPlan& plan) {
    std::string text;
    for (const Fault& fault : plan) {
        shardkit::detail::append(text, text.empty() ? "" : " ", fault.rank, ":", name(fault.kind), ":", fault.at, ":",
                                 fault.value);
    }
    return text;
}

/// Reads a plan from its text.
/// @throws std::invalid_argument for any other text
inline FaultPlan plan_of(std::string_view text,
                         shardkit::SourceLocation where = shardkit::SourceLocation::current()) {
    FaultPlan plan;
    std::string_view rest = text;
    const auto refuse = [&] {
        shardkit::throw_invalid_argument(where, "FaultPlan '", text,
                                         "': expected rank:kind:at:value, as in 1:error:17:0");
    };
    const auto take_until = [&](char end) {
        const std::size_t length = std::min(rest.find(end), rest.size());
        const std::string_view part = rest.substr(0, length);
        rest.remove_prefix(std::min(length + 1, rest.size()));
        return part;
    };
    const auto number = [&](std::string_view part) {
        std::uint64_t value = 0;
        const auto [stopped, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc{} || stopped != part.data() + part.size()) { refuse(); }
        return value;
    };
    while (!rest.empty()) {
        Fault fault;
        fault.rank = static_cast<std::size_t>(number(take_until(':')));
        const auto kind = std::find(fault_names.begin(), fault_names.end(), take_until(':'));
        if (kind == fault_names.end()) { refuse(); }
        fault.kind = static_cast<FaultKind>(kind - fault_names.begin());
        fault.at = number(take_until(':'));
        fault.value = number(take_until(' '));
        plan.push_back(fault);
    }
    return plan;
}

/// From what a seed chooses its faults. The numbers of calls and buffers are those of a run without faults:
/// Faults::most.
struct FaultChoice {
    std::size_t ranks = 1;
    std::uint64_t calls = 1;    ///< of a rank
    std::uint64_t buffers = 1;  ///< of a rank
    std::vector<FaultKind> kinds{FaultKind::delay, FaultKind::error, FaultKind::leave, FaultKind::wrong_data,
                                 FaultKind::out_of_memory};
    std::size_t faults = 1;
    std::uint64_t longest_delay = 20;  ///< milliseconds
};

/// Returns the faults that a seed chooses: the same ones for the same seed and choice, on every machine.
/// @throws std::invalid_argument when there is nothing to choose from
inline FaultPlan plan_of(std::uint64_t seed, const FaultChoice& choice,
                         shardkit::SourceLocation where = shardkit::SourceLocation::current()) {
    if (choice.ranks == 0 || choice.calls == 0 || choice.buffers == 0 || choice.kinds.empty()) {
        shardkit::throw_invalid_argument(where, "FaultChoice: ", choice.ranks, " ranks, ", choice.calls, " calls, ",
                                         choice.buffers, " buffers and ", choice.kinds.size(),
                                         " kinds of faults, expected at least 1 of each");
    }
    std::uint64_t state = seed;
    const auto draw = [&] {  // splitmix64
        std::uint64_t z = state += 0x9E3779B97F4A7C15ULL;
        z = (z ^ z >> 30U) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ z >> 27U) * 0x94D049BB133111EBULL;
        return z ^ z >> 31U;
    };
    FaultPlan plan;
    for (std::size_t i = 0; i < choice.faults; ++i) {
        Fault fault;
        fault.rank = static_cast<std::size_t>(draw() % choice.ranks);
        fault.kind = choice.kinds[static_cast<std::size_t>(draw() % choice.kinds.size())];
        fault.at = draw() % (fault.kind == FaultKind::out_of_memory ? choice.buffers : choice.calls);
        const std::uint64_t value = draw();
        if (fault.kind == FaultKind::delay) {
            fault.value = 1 + value % std::max<std::uint64_t>(choice.longest_delay, 1);
        }
        if (fault.kind == FaultKind::wrong_data) { fault.value = value; }
        plan.push_back(fault);
    }
    return plan;
}

}  // namespace planted
