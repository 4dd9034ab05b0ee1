// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/recorder.hpp>
#include <shardkit/comm/uneven_counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// When the ranks of a group compare their calls, where the engine leaves the choice.
enum class CompareCalls : std::uint8_t {
    off,
    each_step,  ///< when they call `compare_calls`, as each step of an optimizer does
    each_call   ///< also before each collective: the host waits for all ranks
};

namespace detail {

/// A call in a form that can be sent to other ranks, for an error text; or the reason why there is none.
struct CallRecord {
    static constexpr std::uint64_t none = ~std::uint64_t{0};

    Signature signature{};
    std::uint64_t sequence = none;
    std::uint32_t line = 0;
    char file[212] = {};
    char subject[128] = {};

    explicit CallRecord(std::string_view instead = {}) noexcept { instead.copy(subject, sizeof subject - 1); }
    CallRecord(const Call& call, std::uint64_t number) noexcept
        : CallRecord(call.signature, call.where, text_of(call.subject), number) {}
    CallRecord(const Signature& called, SourceLocation where, std::string_view what, std::uint64_t number) noexcept
        : signature(called), sequence(number), line(where.line) {
        std::strncpy(file, where.file, sizeof file - 1);
        what.copy(subject, sizeof subject - 1);
    }
    std::string text(std::string_view stated = {}) const {
        return sequence == none ? std::string(subject) : describe(signature, {file, line}, subject, stated);
    }
    bool operator==(const CallRecord& other) const noexcept {
        return signature == other.signature && sequence == other.sequence;
    }
};

/// Returns a text with the calls of rank 0 and rank `other`, the same on every rank. `all` has every rank's record.
/// `name(rank)` is the rank's number for the text, `own` this rank's record, `book` this rank's statements.
/// gather(value) must return every rank's value, by rank; all ranks call it equally often.
template <class All, class Name, class Gather>
std::string disagreement(std::string_view place, const All& all, std::size_t other, const Name& name,
                         const CallRecord& own, const StatementBook& book, const Gather& gather) {
    std::pair<std::string, std::string> stated;
    if (all[0].sequence == all[other].sequence && differ_in_statements(all[0].signature, all[other].signature)) {
        const Statements said = book.list(own.signature.argument);
        stated = stated_apart(0, other, {all[0].file, all[0].line},
                              [&](std::size_t i) { return gather(StatementRecord(said, i)); });
    }
    return disagreement(place, name(0), all[0].text(stated.first), name(other), all[other].text(stated.second));
}

/// Returns a text with the first two ranks whose counts of an uneven all-to-all differ, the same on every rank. `own`
/// is this rank's call; `name` and `gather` are as above.
/// Cost:    a gather of two numbers per rank for each rank
template <class Name, class Gather>
std::string disagreement(std::string_view place, const UnevenCounts& counts, const CallRecord& own, const Name& name,
                         const Gather& gather) {
    using Pair = std::array<std::size_t, 2>;  // what a rank sends to another one, and receives from it
    const std::size_t ranks = counts.sends.size();
    std::vector<Pair> with;  // by the other rank, then by rank
    for (std::size_t q = 0; q < ranks; ++q) {
        const auto all = gather(Pair{counts.sends[q], counts.receives[q]});
        with.insert(with.end(), all.begin(), all.end());
    }
    const auto apart = counts_apart(
        ranks, [&](std::size_t from, std::size_t to) { return with[to * ranks + from][0]; },
        [&](std::size_t to, std::size_t from) { return with[from * ranks + to][1]; });
    const auto records = gather(own);
    return disagreement(
        place, apart.value(), [&](std::size_t rank, std::string_view stated) { return records[rank].text(stated); },
        name);
}

/// The calls of one rank over one group: a hash of all of them, and where the last ones are in the rank's flight
/// recorder. Fixed in size.
class CallTrace {
  public:
    static constexpr std::uint64_t kept = 256;
    static constexpr std::uint64_t kept_uneven = 64;

    /// The values that ranks compare first: the number of calls and their hash, equal on all ranks, and the balance
    /// of counts, which adds up to 0 over the ranks.
    struct State {
        std::uint64_t count = 0;
        std::uint64_t hash = 0;
        std::uint64_t balance = 0;

        friend bool operator==(const State& a, const State& b) noexcept {
            return a.count == b.count && a.hash == b.hash;
        }
    };
    /// Hashes of the sequences that end with each of the last calls; call i is at i % kept.
    using Hashes = std::array<std::uint64_t, kept>;
    /// What each of the last uneven exchanges has added to the balance; exchange i is at i % kept_uneven.
    using Balances = std::array<std::uint64_t, kept_uneven>;

    explicit CallTrace(std::size_t ranks) : counts_(kept_uneven * 2 * ranks) {}

    void add(const Call& call) noexcept {
        state_.hash = call_hash(call.signature, state_.hash);
        hashes_[state_.count % kept] = state_.hash;
        numbers_[state_.count % kept] = call.number;
        ++state_.count;
    }
    /// Adds the counts of the last call, an uneven all-to-all of this rank.
    void add_counts(std::size_t rank, const UnevenCounts& counts) noexcept {
        const std::size_t at = uneven_++ % kept_uneven;
        uneven_calls_[at] = state_.count - 1;
        // By the number of the call, so that two calls whose order differs between ranks do not add up to 0.
        balances_[at] = count_balance(rank, counts) * (2 * state_.count + 1);
        state_.balance += balances_[at];
        std::size_t* const kept_here = counts_.data() + at * 2 * counts.sends.size();
        std::copy(counts.sends.begin(), counts.sends.end(), kept_here);
        std::copy(counts.receives.begin(), counts.receives.end(), kept_here + counts.sends.size());
    }

    const State& state() const noexcept { return state_; }
    const Hashes& hashes() const noexcept { return hashes_; }
    /// Returns the number of uneven exchanges among the calls.
    std::uint64_t uneven() const noexcept { return uneven_; }
    const Balances& balances() const noexcept { return balances_; }
    /// Return the call and the counts of one of the last uneven exchanges by its number.
    std::uint64_t uneven_call(std::uint64_t exchange) const noexcept { return uneven_calls_[exchange % kept_uneven]; }
    UnevenCounts counts(std::uint64_t exchange) const noexcept {
        const std::size_t ranks = counts_.size() / (2 * kept_uneven);
        const std::size_t* const sends = counts_.data() + exchange % kept_uneven * 2 * ranks;
        return {{sends, ranks}, {sends + ranks, ranks}};
    }
    bool has(std::uint64_t call) const noexcept { return call < state_.count && call + kept >= state_.count; }
    /// Returns one of the last calls by its number, out of the rank's flight recorder.
    CallRecord record(std::uint64_t call, const Recorder& recorder) const {
        if (call >= state_.count) { return CallRecord("nothing more"); }
        const auto made = recorder.read(has(call) ? numbers_[call % kept] : Call::no_number);
        return made ? CallRecord(made->signature, made->where, made->subject, call)
                    : CallRecord("what it no longer knows");
    }

  private:
    State state_;
    Hashes hashes_{};
    std::array<std::uint64_t, kept> numbers_{};  // of the calls in the rank's flight recorder
    std::uint64_t uneven_ = 0;
    std::array<std::uint64_t, kept_uneven> uneven_calls_{};
    Balances balances_{};
    std::vector<std::size_t> counts_;  // of each of the last uneven exchanges: what it sends, then what it receives
};

/// The largest number of bytes that find_disagreement gathers from each rank at once.
inline constexpr std::size_t trace_bytes =
    std::max({sizeof(CallTrace::Hashes), sizeof(CallRecord), sizeof(StatementRecord)});

/// Returns the first call in which two traces differ, or the oldest call that both still know, if they differ there
/// already.
inline std::uint64_t first_difference(const CallTrace::State& a, const CallTrace::Hashes& hashes_a,
                                      const CallTrace::State& b, const CallTrace::Hashes& hashes_b) noexcept {
    const std::uint64_t both = std::min(a.count, b.count);
    const std::uint64_t longest = std::max(a.count, b.count);
    std::uint64_t call = longest - std::min(longest, CallTrace::kept);
    while (call < both && hashes_a[call % CallTrace::kept] == hashes_b[call % CallTrace::kept]) { ++call; }
    return call;
}

/// Compares the counts of uneven exchanges of ranks that made the same calls, like find_disagreement. `states` are
/// the states of all traces.
template <class Gather>
std::optional<std::string> find_counts_apart(const CallTrace& trace, const std::vector<CallTrace::State>& states,
                                             const Recorder& recorder, const Gather& gather) {
    const auto sum_of = [](const auto& all, const auto& balance) {
        return std::accumulate(all.begin(), all.end(), std::uint64_t{0},
                               [&](std::uint64_t sum, const auto& each) { return sum + balance(each); });
    };
    if (sum_of(states, [](const CallTrace::State& state) { return state.balance; }) == 0) { return std::nullopt; }
    const auto balances = gather(trace.balances());
    const std::uint64_t oldest = trace.uneven() - std::min(trace.uneven(), CallTrace::kept_uneven);
    std::uint64_t found = oldest;
    const auto added = [&](const CallTrace::Balances& each) { return each[found % CallTrace::kept_uneven]; };
    while (found < trace.uneven() && sum_of(balances, added) == 0) { ++found; }
    if (found == trace.uneven()) {
        return concat("the ranks disagree about the counts of an uneven all-to-all before call ",
                      trace.uneven_call(oldest));
    }
    const std::uint64_t call = trace.uneven_call(found);
    return disagreement(
        concat(" in call ", call), trace.counts(found), trace.record(call, recorder),
        [](std::size_t rank) { return rank; }, gather);
}

/// Compares the calls of all ranks of the group. Returns nothing when they are equal, otherwise a sentence, the same
/// on all ranks. gather(value) must return every rank's value, by rank, as a span; all ranks call it equally often.
/// `journal` is this rank's.
/// Cost:    gathers 24 bytes per rank, and more when there is a difference.
template <class Gather>
std::optional<std::string> find_disagreement(const CallTrace& trace, const engine::Journal& journal,
                                             const Gather& gather) {
    const auto copies = [&](const auto& value) {
        const auto all = gather(value);
        return std::vector<std::remove_cvref_t<decltype(value)>>(all.begin(), all.end());
    };
    const auto states = copies(trace.state());
    const std::size_t other = first_apart(states);
    if (other == states.size()) { return find_counts_apart(trace, states, journal.recorder(), copies); }
    const auto hashes = copies(trace.hashes());
    const std::uint64_t call = first_difference(states[0], hashes[0], states[other], hashes[other]);
    const CallRecord own = trace.record(call, journal.recorder());
    const bool earlier = call > 0 && call + CallTrace::kept == std::max(states[0].count, states[other].count);
    return disagreement(
        concat(" in call ", call, earlier ? " or before" : ""), copies(own), other,
        [](std::size_t rank) { return rank; }, own, journal.statements(), copies);
}

}  // namespace detail

}  // namespace shardkit
