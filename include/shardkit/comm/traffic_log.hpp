// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/verb.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit {

/// Counts what one rank has communicated, by verb and by the axes of the communicator. The engine counts the bytes
/// that it copies: `moved` is what went between this rank and its peers, not a formula. A group of one rank
/// communicates nothing and has no entry.
class TrafficLog {
  public:
    struct Entry {
        Verb verb{};
        std::string axes;
        std::uint64_t calls = 0;
        ByteCount payload;  ///< bytes of the whole buffer, summed over calls
        ByteCount moved;    ///< bytes that this rank read from or wrote to its peers
    };

    /// Adds the rows of one communicator, so that `record` never allocates. Returns the index of the first one.
    std::size_t add_communicator(std::string_view axes) {
        for (std::size_t i = 0; i < rows_.size(); i += detail::verb_count) {
            if (rows_[i].axes == axes) { return i; }
        }
        const std::size_t first = rows_.size();
        for (std::size_t v = 0; v < detail::verb_count; ++v) {
            rows_.push_back({static_cast<Verb>(v), std::string(axes), 0, {}, {}});
        }
        return first;
    }

    void record(std::size_t first_row, Verb verb, ByteCount payload, ByteCount moved) noexcept {
        Entry& row = rows_[first_row + static_cast<std::size_t>(verb)];
        ++row.calls;
        row.payload += payload;
        row.moved += moved;
    }

    /// Returns all rows, including unused ones: the same list on every rank that has made the same communicators.
    std::span<const Entry> rows() const noexcept { return rows_.span(); }

    /// Returns the rows with at least one call, in order of first appearance of their axes.
    std::vector<Entry> entries() const {
        std::vector<Entry> used;
        for (const Entry& row : rows_) {
            if (row.calls > 0) { used.push_back(row); }
        }
        return used;
    }

    /// Returns the sum over all axes.
    Entry total(Verb verb) const {
        Entry all{verb, "all", 0, {}, {}};
        for (const Entry& row : rows_) {
            if (row.verb != verb) { continue; }
            all.calls += row.calls;
            all.payload += row.payload;
            all.moved += row.moved;
        }
        return all;
    }

    /// Adds what was communicated in another time, whichever communicators there were.
    TrafficLog& operator+=(const TrafficLog& other) {
        for (const Entry& row : other.rows_) {
            Entry& own = rows_[add_communicator(row.axes) + static_cast<std::size_t>(row.verb)];
            own.calls += row.calls;
            own.payload += row.payload;
            own.moved += row.moved;
        }
        return *this;
    }

    /// Resets all counts to zero; communicators keep their rows.
    void clear() noexcept {
        for (Entry& row : rows_) {
            row.calls = 0;
            row.payload = row.moved = ByteCount{};
        }
    }

  private:
    detail::List<Entry> rows_;
};

namespace detail {
/// Returns a line of a table of traffic, without its end.
inline std::string traffic_line(Verb verb, const std::string& axes, std::uint64_t calls, ByteCount moved) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "  %-15.*s %-18s %6llu calls %14s", static_cast<int>(name(verb).size()),
                  name(verb).data(), axes.c_str(), static_cast<unsigned long long>(calls),
                  human_bytes(moved).c_str());
    return line.data();
}
}  // namespace detail

/// Returns what a rank has communicated as a text table: verb, axes, calls, bytes moved.
inline std::string traffic_table(const TrafficLog& log) {
    std::string table;
    for (const TrafficLog::Entry& row : log.entries()) {
        table += detail::traffic_line(row.verb, row.axes, row.calls, row.moved) + '\n';
    }
    return table.empty() ? "  (nothing)\n" : table;
}

}  // namespace shardkit
