// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/detail/concat.hpp>

// What the ranks of an uneven all-to-all say about each other: rank a sends n elements to rank b, and b receives n
// elements from a.

namespace shardkit::detail {

using Counts = std::span<const std::size_t>;

/// What a rank sends to each rank, and receives from it, in elements.
struct UnevenCounts {
    Counts sends;
    Counts receives;
};

/// Returns a hash of the statement that `from` sends `count` elements to `to`.
/// Source: Steele, Lea and Flood 2014: SplitMix64
constexpr std::uint64_t count_hash(std::size_t from, std::size_t to, std::size_t count) noexcept {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : {from, to, count}) {
        hash += word + 0x9e3779b97f4a7c15U;
        hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9U;
        hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111ebU;
        hash ^= hash >> 31U;
    }
    return hash;
}

/// Returns the hashes of what a rank sends less those of what it receives. The sum over all ranks is 0 if each sends
/// what its peers receive. If not, it is 0 in one of 2^64 cases.
constexpr std::uint64_t count_balance(std::size_t rank, const UnevenCounts& counts) noexcept {
    std::uint64_t balance = 0;
    for (std::size_t q = 0; q < counts.sends.size(); ++q) {
        balance += count_hash(rank, q, counts.sends[q]) - count_hash(q, rank, counts.receives[q]);
    }
    return balance;
}

/// Two ranks of which one sends something else than the other receives.
struct CountsApart {
    std::size_t from;
    std::size_t to;
    std::size_t sent;
    std::size_t received;
};

/// Returns the first such ranks, where sends(a, b) is what a says that it sends to b, and receives(b, a) what b says
/// that it receives from a.
template <class Sends, class Receives>
std::optional<CountsApart> counts_apart(std::size_t ranks, const Sends& sends, const Receives& receives) {
    for (std::size_t from = 0; from < ranks; ++from) {
        for (std::size_t to = 0; to < ranks; ++to) {
            const CountsApart found{from, to, sends(from, to), receives(to, from)};
            if (found.sent != found.received) { return found; }
        }
    }
    return std::nullopt;
}

/// Returns a text with both sides, the same on every rank. text(rank, stated) is a rank's call, name(rank) its number
/// for the text.
template <class Text, class Name>
std::string disagreement(std::string_view place, const CountsApart& apart, const Text& text, const Name& name) {
    return disagreement(place, name(apart.from),
                        text(apart.from, concat(" with ", apart.sent, " to rank ", name(apart.to))), name(apart.to),
                        text(apart.to, concat(" with ", apart.received, " from rank ", name(apart.from))));
}

}  // namespace shardkit::detail
