// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/table_text.hpp"

namespace benchmarks::kernels {

namespace {

std::string_view name(Device device) { return device_names[static_cast<std::size_t>(device)]; }
std::string_view name(KernelKind kernel) { return kernel_names[static_cast<std::size_t>(kernel)]; }
std::string_view name(DataType type) { return type_names[static_cast<std::size_t>(type)]; }

}  // namespace

std::string table_head(const Options& o, const Machine& machine) {
    const bool gpu = o.device == Device::gpu;
    std::string text = "# shardkit kernels: " + std::string(name(o.device)) + ", " + counted(o.ranks, "rank") +
                       (o.ranks > 1 ? " at once, the slowest reported\n" : "\n");
    text += machine_head(machine, o.pin, o.ranks) + method_head(o) + "#\n";
    text += program::formatted("# %10s %8s %7s %11s %12s  %9s %7s %6s  %9s %7s %8s%s\n", "kernel", "type", "B/elem",
                               "size", "count", "time", "bw", "#wrong", "copy", "bw", "of copy",
                               gpu ? "   parts launches graph" : "   parts");
    text += program::formatted("# %10s %8s %7s %11s %12s  %9s %7s %6s  %9s %7s %8s\n", "", "", "", "(B)",
                               "(elements)", "(us)", "(GB/s)", "", "(us)", "(GB/s)", "(%)");
    return text;
}

std::string table_row(const Row& row, const Options& o) {
    const Figure& figure = row.figure;
    const auto gigabytes = [&](const Summary& time) { return four_digits(row.bandwidth(o.ranks, time) / 1e9); };
    const std::string kernel(name(row.kernel));
    const std::string type(name(row.type));
    const std::size_t parts = std::max({row.tensors, row.runs, row.groups});
    std::string launched = program::formatted(" %7s", parts > 0 ? std::to_string(parts).c_str() : "-");
    if (row.launches) { launched += program::formatted(" %8zu %5s", *row.launches, row.graph ? "on" : "off"); }
    return program::formatted("  %10s %8s %7llu %11llu %12llu  %9s %7s %6s  %9s %7s %8.1f%s\n", kernel.c_str(),
                              type.c_str(), static_cast<unsigned long long>(bytes_per_element(row.kernel, row.type)),
                              static_cast<unsigned long long>(row.bytes),
                              static_cast<unsigned long long>(row.elements),
                              four_digits(figure.time.median * 1e6).c_str(), gigabytes(figure.time).c_str(),
                              figure.wrong ? std::to_string(*figure.wrong).c_str() : "N/A",
                              four_digits(figure.copy->time.median * 1e6).c_str(),
                              gigabytes(figure.copy->time).c_str(), 100 * row.share_of_copy(), launched.c_str());
}

std::string json_report(const Options& o, const Machine& machine, const std::vector<Row>& rows) {
    using nlohmann::json;
    std::uint64_t wrong = 0;
    json measured = json::array();
    for (const Row& row : rows) {
        const Figure& figure = row.figure;
        wrong += figure.wrong.value_or(0);
        json object{{"kernel", name(row.kernel)},
                    {"type", name(row.type)},
                    {"bytes_per_element", bytes_per_element(row.kernel, row.type)},
                    {"size", row.bytes},
                    {"count", row.elements},
                    {"calls_per_round", figure.calls},
                    {"time_us", to_json(figure.time)},
                    {"bandwidth_gb_s", row.bandwidth(o.ranks, figure.time) / 1e9},
                    {"wrong", figure.wrong ? json(*figure.wrong) : json(nullptr)},
                    {"copy",
                     {{"bytes_per_rank", figure.copy->bytes},
                      {"stores", figure.copy->way},
                      {"time_us", to_json(figure.copy->time)},
                      {"bandwidth_gb_s", row.bandwidth(o.ranks, figure.copy->time) / 1e9}}},
                    {"share_of_copy", row.share_of_copy()}};
        object["launches"] = row.launches ? json(*row.launches) : json(nullptr);
        object["runs"] = row.runs > 0 ? json(row.runs) : json(nullptr);
        object["groups"] = row.groups > 0 ? json(row.groups) : json(nullptr);
        object["graph"] = row.graph;
        object["tensors"] = row.tensors > 0 ? json(row.tensors) : json(nullptr);
        measured.push_back(std::move(object));
    }
    return result_text("kernels", machine,
                       {{"engine", name(o.device)},
                        {"ranks", o.ranks},
                        {"pinned", o.pin},
                        {"warmup", o.warmup},
                        {"rounds", o.rounds},
                        {"checks", o.checks},
                        {"wrong", wrong},
                        {"rows", std::move(measured)}});
}

}  // namespace benchmarks::kernels
