// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/detail/human_bytes.hpp>

namespace shardkit {

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
