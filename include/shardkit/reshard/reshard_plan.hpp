// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/reshard/boxes.hpp>
#include <shardkit/reshard/reshard_options.hpp>
#include <shardkit/reshard/transfers.hpp>

namespace shardkit::detail {

/// What a plan was made from, as far as a rank knows it: to see whether it still holds.
struct PlannedSide {
    Boxes boxes;
    List<HeldElements> held;

    /// Returns what differs in another side, or nothing.
    std::string difference(const PlannedSide& now) const {
        const List<std::string>& names = boxes.names;
        const List<std::string>& others = now.boxes.names;
        for (std::size_t t = 0; t < std::max(names.size(), others.size()); ++t) {
            if (t >= others.size()) { return concat("'", names[t], "' is no longer there"); }
            if (t >= names.size()) { return concat("'", others[t], "' was not there"); }
            if (names[t] != others[t]) { return concat("'", others[t], "' is where '", names[t], "' was"); }
            if (!boxes.tensors[t].is_as(now.boxes.tensors[t])) {
                return concat("'", names[t], "' has another shape, type or place");
            }
        }
        if (held.size() != now.held.size()) {
            return concat("this rank has ", now.held.size(), " kinds of values, and had ", held.size());
        }
        for (std::size_t v = 0; v < held.size(); ++v) {
            if (held[v] == now.held[v]) { continue; }
            return concat("this rank holds elements ", now.held[v].begin, " to ", now.held[v].end,
                          " of a group's flat buffer, and held ", held[v].begin, " to ", held[v].end);
        }
        return {};
    }
};

/// A plan on one rank, and what it was made from.
struct PlannedReshard {
    Transfers transfers;
    PlannedSide from, to;
};

}  // namespace shardkit::detail

namespace shardkit {

/// Who sends what to whom in a reshard: see plan_reshard. It is a value that refers to no state, and can be used for
/// any two states that lie as those that it was made from.
class ReshardPlan {
  public:
    /// Return the number of ranks of both sides together; the bytes that rank `to` takes from rank `from`, which is
    /// what it keeps where they are one; those that a rank receives from others; and those of all ranks.
    std::size_t ranks() const noexcept { return transfers().ranks; }
    std::uint64_t bytes(std::size_t from, std::size_t to) const noexcept {
        return transfers().bytes[transfers().pair(from, to)];
    }
    std::uint64_t received(std::size_t rank) const noexcept {
        std::uint64_t all = 0;
        for (std::size_t from = 0; from < ranks(); ++from) { all += from == rank ? 0 : bytes(from, rank); }
        return all;
    }
    std::uint64_t received() const noexcept {
        std::uint64_t all = 0;
        for (std::size_t rank = 0; rank < ranks(); ++rank) { all += received(rank); }
        return all;
    }
    /// Returns the number of exchanges, each of at most one message that a rank sends and one that it receives, that
    /// are made one after the other.
    std::uint64_t rounds() const noexcept { return transfers().rounds(); }
    const ReshardOptions& options() const noexcept { return options_; }

    /// Returns the plan as a text table: a line for each pair of ranks.
    std::string describe() const {
        std::string text = detail::concat("reshard of ", transfers().next_alike.size(), " tensors on ", ranks(),
                                          " ranks: ", detail::human_bytes(ByteCount{received()}), " received, ",
                                          rounds(), " rounds\n");
        for (std::size_t from = 0; from < ranks(); ++from) {
            for (std::size_t to = 0; to < ranks(); ++to) {
                if (bytes(from, to) == 0) { continue; }
                std::array<char, 96> line{};
                const std::string amount = detail::human_bytes(ByteCount{bytes(from, to)});
                if (from == to) {
                    std::snprintf(line.data(), line.size(), "  rank %zu keeps %s\n", from, amount.c_str());
                } else {
                    std::snprintf(line.data(), line.size(), "  rank %zu to rank %zu: %s, messages: %llu\n", from, to,
                                  amount.c_str(), static_cast<unsigned long long>(transfers().messages(from, to)));
                }
                text += line.data();
            }
        }
        return text;
    }

    // What plan_reshard makes, and reshard uses.
    ReshardPlan(detail::PlannedReshard planned, ReshardOptions options)
        : planned_(std::move(planned)), options_(std::move(options)) {}
    const detail::PlannedReshard& planned() const noexcept { return planned_; }

  private:
    const detail::Transfers& transfers() const noexcept { return planned_.transfers; }

    detail::PlannedReshard planned_;
    ReshardOptions options_;
};

}  // namespace shardkit
