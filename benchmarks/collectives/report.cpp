// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/table_text.hpp"

namespace benchmarks {

namespace {

std::string figure_columns(const Row& row, const std::optional<Figure>& figure) {
    if (!figure) { return program::formatted("  %9s %7s %7s %6s", "-", "-", "-", "-"); }
    const auto bandwidth = [&](double value) {
        return Row::moves(*figure) ? four_digits(value / 1e9) : std::string("-");
    };
    const std::string wrong = !row.facts.moves_data ? "-" : figure->wrong ? std::to_string(*figure->wrong) : "N/A";
    return program::formatted("  %9s %7s %7s %6s", four_digits(figure->time.median * 1e6).c_str(),
                              bandwidth(row.algorithm_bandwidth(*figure)).c_str(),
                              bandwidth(row.bus_bandwidth(*figure)).c_str(), wrong.c_str());
}

std::string share_column(const std::optional<Figure>& figure) {
    if (!figure || !figure->copy) { return program::formatted(" %6s", "-"); }
    return program::formatted(" %6.1f", 100 * figure->copy->time.median / figure->time.median);
}

}  // namespace

std::string table_head(const Options& o, const Machine& machine, const std::string& mpi) {
    const std::string engine(engine_names[static_cast<std::size_t>(o.engine)]);
    std::string text = "# shardkit collectives: engine " + engine + (mpi.empty() ? "" : " (" + mpi + ")") + ", " +
                       counted(o.mesh.world(), "rank") + ", mesh " + o.mesh.describe() + ", axis " + o.axes_text() +
                       ": " + counted(o.groups(), "group") + " of " + counted(o.group_size(), "rank") +
                       (o.groups() > 1 ? " at once, the slowest reported\n" : "\n");
    text += machine_head(machine, o.pin, o.mesh.world()) + method_head(o);
    if (!o.left_out.empty()) { text += "# without: " + o.left_out + ", which have no form that was asked for\n"; }
    return text;
}

std::string verb_head(VerbKind verb) {
    std::string text = "#\n# " + std::string(verb_names[static_cast<std::size_t>(verb)]) + "\n";
    text += program::formatted("# %47s  %20s %13s %20s %12s   %s\n", "", "out-of-place", "", "in-place", "",
                               "of copy (%)");
    const std::string figure = program::formatted("  %9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
    const std::string units = program::formatted("  %9s %7s %7s", "(us)", "(GB/s)", "(GB/s)");
    text += program::formatted("# %11s %12s %8s %6s %6s", "size", "count", "type", "redop", "root") + figure +
            figure + program::formatted(" %6s %6s\n", "out", "in");
    text += program::formatted("# %11s %12s %8s %6s %6s", "(B)", "(elements)", "", "", "") + units +
            program::formatted(" %6s", "") + units + "\n";
    return text;
}

std::string table_end(const std::vector<Row>& rows) {
    std::uint64_t wrong = 0;
    bool checked = false;
    std::array<double, verb_names.size()> sum{};
    std::array<std::size_t, verb_names.size()> count{};
    for (const Row& row : rows) {
        wrong += row.wrong();
        for (const std::optional<Figure>& figure : {row.out_of_place, row.in_place}) {
            if (!figure) { continue; }
            checked = checked || (row.facts.moves_data && figure->wrong);
            if (!Row::moves(*figure) || row.facts.bus_factor == 0) { continue; }
            sum[static_cast<std::size_t>(row.verb)] += row.bus_bandwidth(*figure) / 1e9;
            ++count[static_cast<std::size_t>(row.verb)];
        }
    }
    std::string text = "#\n";
    if (checked) {
        text += "# Out of bounds values : " + std::to_string(wrong) + (wrong == 0 ? " OK\n" : " FAILED\n");
    }
    const bool several = std::count(count.begin(), count.end(), 0U) + 1 < static_cast<std::ptrdiff_t>(count.size());
    for (std::size_t verb = 0; verb < count.size(); ++verb) {
        if (count[verb] == 0) { continue; }
        text += "# Avg bus bandwidth    : " + four_digits(sum[verb] / static_cast<double>(count[verb])) +
                (several ? " (" + std::string(verb_names[verb]) + ")\n" : "\n");
    }
    return text;
}

std::string table_row(const Row& row, const Options& o) {
    const std::string type(row.facts.moves_data ? type_names[static_cast<std::size_t>(row.type)] : "-");
    const std::string op(row.facts.reduces ? op_names[static_cast<std::size_t>(row.op)] : "-");
    const std::string root = row.facts.has_root ? std::to_string(o.root) : "-";
    return program::formatted("  %11llu %12llu %8s %6s %6s", static_cast<unsigned long long>(row.bytes),
                              static_cast<unsigned long long>(row.count), type.c_str(), op.c_str(), root.c_str()) +
           figure_columns(row, row.out_of_place) + figure_columns(row, row.in_place) +
           share_column(row.out_of_place) + share_column(row.in_place) + "\n";
}

namespace {

using nlohmann::json;

json to_json(const Row& row, const std::optional<Figure>& figure) {
    if (!figure) { return nullptr; }
    json object{{"time_us", to_json(figure->time)}, {"calls_per_round", figure->calls}};
    object["wrong"] = row.facts.moves_data && figure->wrong ? json(*figure->wrong) : json(nullptr);
    object["algbw_gb_s"] = Row::moves(*figure) ? json(row.algorithm_bandwidth(*figure) / 1e9) : json(nullptr);
    object["busbw_gb_s"] = Row::moves(*figure) ? json(row.bus_bandwidth(*figure) / 1e9) : json(nullptr);
    if (figure->copy) {
        object["copy"] = {{"bytes_per_rank", figure->copy->bytes},
                          {"stores", figure->copy->way},
                          {"time_us", to_json(figure->copy->time)},
                          {"busbw_gb_s", row.copy_bandwidth(*figure) / 1e9}};
        object["share_of_copy"] = figure->copy->time.median / figure->time.median;
    } else {
        object["copy"] = nullptr;
        object["share_of_copy"] = nullptr;
    }
    return object;
}

json to_json(const Row& row, const Options& options) {
    json object{{"verb", verb_names[static_cast<std::size_t>(row.verb)]}, {"size", row.bytes}, {"count", row.count}};
    object["type"] = row.facts.moves_data ? json(type_names[static_cast<std::size_t>(row.type)]) : json(nullptr);
    object["redop"] = row.facts.reduces ? json(op_names[static_cast<std::size_t>(row.op)]) : json(nullptr);
    object["root"] = row.facts.has_root ? json(options.root) : json(nullptr);
    object["bus_factor"] = row.facts.moves_data ? json(row.facts.bus_factor) : json(nullptr);
    object["out_of_place"] = to_json(row, row.out_of_place);
    object["in_place"] = to_json(row, row.in_place);
    return object;
}

}  // namespace

std::string json_report(const Options& options, const Machine& machine, const std::string& mpi,
                        const std::vector<Row>& rows) {
    const bool stages = options.engine == EngineKind::nccl;
    std::uint64_t wrong = 0;
    json measured = json::array();
    for (const Row& row : rows) {
        wrong += row.wrong();
        measured.push_back(to_json(row, options));
    }
    return result_text("collectives", machine,
                       {{"engine", engine_names[static_cast<std::size_t>(options.engine)]},
                        {"mpi", mpi.empty() ? json(nullptr) : json(mpi)},
                        {"ranks", options.mesh.world()},
                        {"mesh", options.mesh.describe()},
                        {"axis", options.axes_text()},
                        {"staging_bytes", stages ? json(options.staging_bytes) : json(nullptr)},
                        {"groups", options.groups()},
                        {"group_size", options.group_size()},
                        {"pinned", options.pin},
                        {"warmup", options.warmup},
                        {"rounds", options.rounds},
                        {"checks", options.checks},
                        {"wrong", wrong},
                        {"rows", std::move(measured)}});
}

}  // namespace benchmarks
