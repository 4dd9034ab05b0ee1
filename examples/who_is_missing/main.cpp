// SPDX-License-Identifier: Apache-2.0
// Reads the flight records that the ranks of a job have written, and says who waits where and who is missing:
//     who_is_missing PREFIX-rank-*.json
// g++ -std=c++20 -Iinclude examples/who_is_missing/main.cpp -o who_is_missing
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/comm/rank_record.hpp>
#include <shardkit/comm/record_files.hpp>
#include <shardkit/comm/who_is_missing.hpp>

namespace {

namespace sk = shardkit;

constexpr std::size_t columns = 64;

/// Returns a lane for each rank, of the last `seconds` before the first record was taken: '#' where a call was open,
/// '.' where the rank was outside of calls, a blank where its record does not reach.
std::string lanes(const std::vector<sk::RankRecord>& records, double seconds) {
    std::uint64_t end = records.front().taken;
    for (const sk::RankRecord& record : records) { end = std::min(end, record.taken); }
    const auto begin = end - static_cast<std::uint64_t>(seconds * 1e9);
    const auto column = [&](std::uint64_t time) {
        const double at = (static_cast<double>(time) - static_cast<double>(begin)) / (seconds * 1e9) * columns;
        return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(columns)));
    };
    std::string text = "the last " + std::to_string(seconds).substr(0, 5) + " s; # in a call, . outside of calls\n";
    for (const sk::RankRecord& record : records) {
        std::string lane(columns, ' ');
        if (!record.calls.empty()) {
            std::fill(lane.begin() + static_cast<std::ptrdiff_t>(column(record.calls.front().given)), lane.end(),
                      '.');
        }
        for (const sk::RecentCall& call : record.calls) {
            const std::size_t from = std::min(column(call.given), columns - 1);
            const std::size_t to = call.done == 0 && !call.failed ? columns : column(call.done);
            if (call.done == 0 ? call.failed : call.done < begin) { continue; }
            std::fill(lane.begin() + static_cast<std::ptrdiff_t>(from),
                      lane.begin() + static_cast<std::ptrdiff_t>(std::max(to, from + 1)), '#');
        }
        std::string number = std::to_string(record.rank);
        number.insert(0, 6 - std::min<std::size_t>(6, number.size()), ' ');
        text += number + " |" + lane + "|\n";
    }
    return text;
}

}  // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> files(arguments + std::min(count, 1), arguments + count);
    if (files.empty() || files.front() == "--help" || files.front() == "-h") {
        std::puts("usage: who_is_missing PREFIX-rank-*.json: who waits where, who has not come, who left the order");
        return files.empty() ? 2 : EXIT_SUCCESS;
    }
    try {
        std::vector<sk::RankRecord> records;
        for (const std::string& file : files) {
            try {
                records.push_back(sk::read_record(file));
            } catch (const sk::FileError& error) { std::fprintf(stderr, "who_is_missing: %s\n", error.what()); }
        }
        if (records.empty()) { return 2; }
        std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
        const sk::MissingRanks found = sk::who_is_missing(records);
        std::printf("%s\n", found.text.c_str());
        const double waited = static_cast<double>(std::max(found.entering, found.finishing)) * 1e-9;
        std::printf("%s", lanes(records, std::max(2 * waited, 0.001)).c_str());
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "who_is_missing: %s\n", error.what());
        return 2;
    }
}
