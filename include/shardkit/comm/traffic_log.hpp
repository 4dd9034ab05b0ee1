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

namespace shardkit {

/// What one rank has communicated, by verb and by the axes of the communicator. The engine that copies also
/// counts: `moved` is what went between this rank and its peers, not a formula. A group of one rank
/// communicates nothing and leaves no entry.
class TrafficLog {
  public:
    struct Entry {
        Verb verb{};
        std::string axes;
        std::uint64_t calls = 0;
        ByteCount payload;  ///< bytes of the whole buffer, summed over calls
        ByteCount moved;    ///< bytes that this rank read from or wrote to its peers
    };

    /// Makes room for one communicator, so that `record` never allocates. Returns the first index of its rows.
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

    /// Every row, unused ones too: the same list on every rank that has made the same communicators.
    /// (By pointer and size: to check that a vector is a range takes compilers as long as to read the rest of this.)
    std::span<const Entry> rows() const noexcept { return {rows_.data(), rows_.size()}; }

    /// Rows with at least one call, in order of first appearance of their axes.
    std::vector<Entry> entries() const {
        std::vector<Entry> used;
        for (const Entry& row : rows_) {
            if (row.calls > 0) { used.push_back(row); }
        }
        return used;
    }

    /// Sum over all axes.
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

    /// Sets all counts back to zero; communicators keep their rows.
    void clear() noexcept {
        for (Entry& row : rows_) {
            row.calls = 0;
            row.payload = row.moved = ByteCount{};
        }
    }

  private:
    std::vector<Entry> rows_;
};

/// What a rank has communicated as a text table: verb, axes, calls, bytes moved.
inline std::string traffic_table(const TrafficLog& log) {
    std::string table;
    for (const TrafficLog::Entry& row : log.entries()) {
        std::array<char, 120> line{};
        std::snprintf(line.data(), line.size(), "  %-15.*s %-18s %6llu calls %14s\n",
                      static_cast<int>(name(row.verb).size()), name(row.verb).data(), row.axes.c_str(),
                      static_cast<unsigned long long>(row.calls), detail::human_bytes(row.moved).c_str());
        table += line.data();
    }
    return table.empty() ? "  (nothing)\n" : table;
}

}  // namespace shardkit
