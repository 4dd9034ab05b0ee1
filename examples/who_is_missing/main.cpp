// SPDX-License-Identifier: Apache-2.0
// Reads the flight records that the ranks of a job have written, and says who waits where and who is missing:
//     who_is_missing [--svg FILE] PREFIX-rank-*.json
// g++ -std=c++20 -Iinclude examples/who_is_missing/main.cpp -o who_is_missing
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/recorder/rank_record.hpp>

#include "read_record.hpp"
#include "stragglers.hpp"
#include "who_is_missing.hpp"

namespace {

namespace sk = shardkit;

constexpr std::size_t columns = 64;

/// Returns a lane for each rank, of the last `seconds` before the first record was taken: '#' where a call was open,
/// '.' where the rank was outside of calls, a blank where its record does not reach.
std::string lanes(const std::vector<sk::recorder::RankRecord>& records, double seconds) {
    std::uint64_t end = records.front().taken;
    for (const sk::recorder::RankRecord& record : records) { end = std::min(end, record.taken); }
    const auto begin = end - static_cast<std::uint64_t>(seconds * 1e9);
    const auto column = [&](std::uint64_t time) {
        const double at = (static_cast<double>(time) - static_cast<double>(begin)) / (seconds * 1e9) * columns;
        return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(columns)));
    };
    std::string text = "the last " + std::to_string(seconds).substr(0, 5) + " s; # in a call, . outside of calls\n";
    for (const sk::recorder::RankRecord& record : records) {
        std::string lane(columns, ' ');
        if (!record.calls.empty()) {
            std::fill(lane.begin() + static_cast<std::ptrdiff_t>(column(record.calls.front().given)), lane.end(),
                      '.');
        }
        for (const sk::recorder::RecentCall& call : record.calls) {
            const std::size_t from = std::min(column(call.given), columns - 1);
            const std::size_t to = call.done == 0 && !call.failed ? columns : column(call.done);
            if (call.done == 0 ? call.failed : call.done < begin) { continue; }
            std::fill(lane.begin() + static_cast<std::ptrdiff_t>(from),
                      lane.begin() + static_cast<std::ptrdiff_t>(std::max(to, from + 1)), '#');
        }
        std::string number = std::to_string(record.rank);
        number.insert(0, 6 - std::min<std::size_t>(6, number.size()), ' ');
        text.append(number).append(" |").append(lane).append("|\n");
    }
    return text;
}

/// Returns the same lanes as a picture: open calls in red, others in blue, a thin line where the rank was outside of
/// calls. Each rectangle's title is its call.
std::string picture(const std::vector<sk::recorder::RankRecord>& records, double seconds, const std::string& text) {
    constexpr double width = 900;
    constexpr double left = 70;
    constexpr double height = 22;
    const auto escaped = [](const std::string& plain) {
        std::string xml;
        for (const char c : plain) {
            xml += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
        }
        return xml;
    };
    const auto number = [](double value) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.1f", value);
        return std::string(digits);
    };
    double y = 20;
    std::string body =
        "<text x='8' y='" + number(y) + "' font-size='11'>" + escaped(text.substr(0, text.find('\n'))) + "</text>\n";
    std::uint64_t taken = 0;
    for (const sk::recorder::RankRecord& record : records) { taken = std::max(taken, record.taken); }
    const auto at = [&](std::uint64_t time) {
        const double ago = time > taken ? 0 : static_cast<double>(taken - time) * 1e-9;
        return left + (width - left - 8) * (1 - std::min(ago / seconds, 1.0));
    };
    for (const sk::recorder::RankRecord& record : records) {
        y += height;
        body +=
            "<text x='8' y='" + number(y + 5) + "' font-size='11'>rank " + std::to_string(record.rank) + "</text>\n";
        if (!record.calls.empty()) {
            const double from = at(record.calls.front().given);
            body += "<line x1='" + number(from) + "' x2='" + number(at(record.taken)) + "' y1='" + number(y) +
                    "' y2='" + number(y) + "' stroke='#888888'/>\n";
        }
        for (const sk::recorder::RecentCall& call : record.calls) {
            const bool open = call.done == 0;
            const double from = at(call.given);
            const double to = at(open ? (call.failed ? call.given : record.taken) : call.done);
            if (to <= left) { continue; }
            body += "<rect x='" + number(from) + "' y='" + number(y - 7) + "' width='" +
                    number(std::max(to - from, 0.5)) + "' height='14' fill='" + (open ? "#d55e00" : "#0072b2") +
                    "'><title>" + escaped(sk::describe(call.signature, call.where, call.subject)) +
                    "</title></rect>\n";
        }
    }
    y += height;
    body += "<text x='" + number(left) + "' y='" + number(y) + "' font-size='11'>the last " + number(1e3 * seconds) +
            " ms: calls that are over in blue, open ones in red</text>\n";
    const std::string size = "width='" + number(width) + "' height='" + number(y + 10) + "'";
    return "<svg xmlns='http://www.w3.org/2000/svg' " + size + " font-family='monospace'>\n<rect " + size +
           " fill='#ffffff'/>\n" + body + "</svg>\n";
}

/// A line for each of the longest waits.
std::string table_of(const std::vector<flight_records::RankWait>& waits) {
    constexpr std::size_t most = 12;
    std::string text = waits.empty() ? "" : "  rank    step    waited for it   of the step   in calls of\n";
    for (std::size_t i = 0; i < std::min(most, waits.size()); ++i) {
        char numbers[80];
        std::snprintf(numbers, sizeof numbers, "  %4zu  %6u  %13.6f s  %10.1f %%   ", waits[i].rank, waits[i].step,
                      waits[i].seconds, 100 * waits[i].share);
        text += numbers + waits[i].group + "\n";
    }
    return text;
}

/// Leaves the records of the newest run alone.
void keep_one_run(std::vector<sk::recorder::RankRecord>& records) {
    const std::uint64_t run = std::max_element(records.begin(), records.end(), [](const auto& a, const auto& b) {
                                  return a.taken < b.taken;
                              })->run;
    const auto others = std::remove_if(records.begin(), records.end(), [&](const auto& record) {
        if (record.run == run) { return false; }
        std::fprintf(stderr, "who_is_missing: the file of rank %zu is left out: it is of another run\n", record.rank);
        return true;
    });
    records.erase(others, records.end());
}

}  // namespace

int main(int count, char** arguments) {
    std::vector<std::string> files(arguments + std::min(count, 1), arguments + count);
    if (files.empty() || files.front() == "--help" || files.front() == "-h") {
        std::puts(
            "usage: who_is_missing [--svg FILE] PREFIX-rank-*.json: who waits where, who has not come, who left the "
            "order, who lets the others wait");
        return files.empty() ? 2 : EXIT_SUCCESS;
    }
    std::string svg;
    if (files.front() == "--svg" && files.size() > 2) {
        svg = files[1];
        files.erase(files.begin(), files.begin() + 2);
    }
    try {
        std::vector<sk::recorder::RankRecord> records;
        for (const std::string& file : files) {
            try {
                records.push_back(flight_records::read_record(file));
            } catch (const sk::FileError& error) { std::fprintf(stderr, "who_is_missing: %s\n", error.what()); }
        }
        if (records.empty()) { return 2; }
        keep_one_run(records);
        std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
        const flight_records::MissingRanks found = flight_records::who_is_missing(records);
        std::printf("%s\n", found.text.c_str());
        const double waited = static_cast<double>(std::max(found.entering, found.finishing)) * 1e-9;
        const double shown = std::max(2 * waited, 0.001);
        std::printf("%s", lanes(records, shown).c_str());
        const flight_records::Stragglers late = flight_records::find_stragglers(records);
        if (!late.ranks.empty()) { std::printf("%s\n%s", late.text.c_str(), table_of(late.waits).c_str()); }
        if (svg.empty()) { return EXIT_SUCCESS; }
        std::ofstream file(svg);
        file << picture(records, shown, found.text) << std::flush;
        if (!file) { throw std::runtime_error("'" + svg + "' cannot be written"); }
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "who_is_missing: %s\n", error.what());
        return 2;
    }
}
