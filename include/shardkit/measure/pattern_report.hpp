// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/measure/figure.hpp>
#include <shardkit/measure/machine.hpp>
#include <shardkit/measure/pattern.hpp>
#include <shardkit/measure/repeats.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::measure {

namespace detail {

using shardkit::detail::append;
using shardkit::detail::concat;
using shardkit::detail::json_string;

/// A number as a result keeps it: four digits that count, and whole from 1000 on.
inline std::string json_number(double value) {
    if (!std::isfinite(value)) { return "null"; }
    const bool whole = std::abs(value) >= 999.95 || value == std::floor(value);
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), whole ? "%.0f" : "%.4g", whole ? std::floor(value + 0.5) : value);
    return text.data();
}
inline std::string json_number(std::optional<double> value) { return value ? json_number(*value) : "null"; }
/// In microseconds.
inline std::string json_times(const Summary& seconds) {
    return concat("{\"median\": ", json_number(seconds.median * 1e6), ", \"min\": ", json_number(seconds.min * 1e6),
                  ", \"p95\": ", json_number(seconds.p95 * 1e6), "}");
}
inline std::string json_copy(const PatternFigure& of) {
    if (!of.together.copy) { return "null"; }
    const CopyFigure& copy = *of.together.copy;
    return concat("{\"bytes_per_rank\": ", copy.bytes, ", \"stores\": ", json_string(copy.way),
                  ", \"time_us\": ", json_times(copy.time), "}");
}
inline std::string json_row(const PatternFigure& of) {
    const std::optional<std::uint64_t>& wrong = of.together.wrong;
    return concat("{\"pattern\": ", json_string(of.name), ", \"size\": ", of.bytes,
                  ", \"calls_per_round\": ", of.together.calls, ", \"time_us\": ", json_times(of.together.time),
                  ", \"communication_us\": ", json_times(of.communication),
                  ", \"computation_us\": ", of.computation ? json_times(*of.computation) : "null",
                  ", \"hidden\": ", json_number(of.hidden()),
                  ", \"algbw_gb_s\": ", json_number(of.algorithm_bandwidth() / 1e9),
                  ", \"busbw_gb_s\": ", json_number(of.bus_bandwidth() / 1e9), ", \"copy\": ", json_copy(of),
                  ", \"share_of_copy\": ", json_number(of.share_of_copy()),
                  ", \"wrong\": ", wrong ? std::to_string(*wrong) : "null", "}");
}
inline std::string json_machine(const Machine& machine) {
    std::string text =
        concat("{\"processor\": ", json_string(machine.processor), ", \"processors\": ", machine.processors,
               ", \"last_cache_bytes\": ", machine.last_cache, ", \"memory_bytes\": ", machine.memory,
               ", \"system\": ", json_string(machine.system), ", \"load_before\": ", json_number(machine.load));
    if (machine.gpu) {
        const Gpu& gpu = *machine.gpu;
        append(text, ", \"gpu\": {\"name\": ", json_string(gpu.name), ", \"memory_bytes\": ", gpu.memory,
               ", \"driver\": ", json_string(gpu.driver), ", \"cuda\": ", json_string(gpu.cuda),
               ", \"nccl\": ", json_string(gpu.nccl), "}");
    }
    return text + "}";
}

}  // namespace detail

/// Writes what was measured of patterns as one JSON object, in the form of the benchmarks' `--json`, which
/// `benchmarks/run plot` draws. Times are in microseconds, bandwidths in 10^9 bytes per second; docs/measuring.md
/// names the members.
template <class Engine>
std::string pattern_json(const Context<Engine>& context, const Repeats& repeats,
                         std::span<const PatternFigure> figures, const Machine& machine = Machine::read()) {
    using detail::append;
    using detail::concat;
    using detail::json_string;
    std::uint64_t wrong = 0;
    std::string rows;
    for (const PatternFigure& figure : figures) {
        wrong += figure.together.wrong.value_or(0);
        append(rows, rows.empty() ? "" : ",", "\n  ", detail::json_row(figure));
    }
    return concat("{\n \"benchmark\": \"patterns\",\n \"format\": 1,\n \"date\": ", json_string(machine.date),
                  ",\n \"machine\": ", detail::json_machine(machine),
                  ",\n \"build\": {\"compiler\": ", json_string(machine.compiler),
                  ", \"flags\": ", json_string(machine.flags), ", \"shardkit\": ", json_string(machine.version),
                  ", \"commit\": ", json_string(machine.commit),
                  "},\n \"engine\": ", json_string(shardkit::detail::engine_name<Engine>(context.world())),
                  ",\n \"ranks\": ", context.world_size(), ",\n \"warmup\": ", repeats.warmup,
                  ",\n \"rounds\": ", repeats.rounds, ",\n \"checks\": ", repeats.checks, ",\n \"wrong\": ", wrong,
                  ",\n \"rows\": [", rows, rows.empty() ? "]\n}\n" : "\n ]\n}\n");
}

/// Writes a line for each pattern under a head: microseconds and 10^9 bytes per second; `-` where a pattern has no
/// such thing, `N/A` where nothing was checked.
inline std::string pattern_table(std::span<const PatternFigure> figures) {
    const auto cell = [](std::optional<double> value, const char* format) -> std::string {
        if (!value) { return "-"; }
        std::array<char, 400> text{};
        std::snprintf(text.data(), text.size(), format, *value);
        return text.data();
    };
    std::string table;
    const auto add = [&](const std::array<std::string, 9>& cells) {
        constexpr std::array<std::size_t, 9> widths{12, 11, 14, 12, 11, 8, 8, 9, 7};
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::size_t blanks = widths[i] > cells[i].size() ? widths[i] - cells[i].size() : 1;
            table += std::string(blanks, ' ') + cells[i];
        }
    };
    table += "#";
    add({"size (B)", "time (us)", "communication", "computation", "hidden (%)", "algbw", "busbw", "copy (%)",
         "#wrong"});
    table += "  pattern\n";
    for (const PatternFigure& of : figures) {
        const auto percent = [](std::optional<double> share) {
            return share ? std::optional<double>(100 * *share) : share;
        };
        const auto micro = [&](const Summary& seconds) { return cell(seconds.median * 1e6, "%.2f"); };
        table += " ";
        add({std::to_string(of.bytes), micro(of.together.time), micro(of.communication),
             of.computation ? micro(*of.computation) : "-", cell(percent(of.hidden()), "%.1f"),
             cell(of.algorithm_bandwidth() / 1e9, "%.2f"), cell(of.bus_bandwidth() / 1e9, "%.2f"),
             cell(percent(of.share_of_copy()), "%.1f"),
             of.together.wrong ? std::to_string(*of.together.wrong) : "N/A"});
        table += "  " + of.name + "\n";
    }
    return table;
}

}  // namespace shardkit::measure
