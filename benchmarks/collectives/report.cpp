// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/table_text.hpp"

namespace benchmarks {

namespace {

// What is printed here is nccl-tests' (src/util.cu of 2.19.6), to the blank: programs read it.

/// A number in so many characters, with as many decimals as fit, at most two.
std::string number_in(double value, int width) {
    for (int decimals = 2; decimals >= 0; --decimals) {
        std::string text = program::formatted("%*.*f", width, decimals, value);
        if (text.size() <= static_cast<std::size_t>(width)) { return text; }
    }
    return program::formatted(width >= 7 ? "%*.1e" : "%*.0e", width, value);
}

std::string figure_columns(const Row& row, const std::optional<Figure>& figure) {
    if (!figure) { return program::formatted("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A"); }
    const std::string wrong = row.facts.moves_data && figure->wrong
                                  ? program::formatted("%6g", static_cast<double>(*figure->wrong))
                                  : std::string("   N/A");
    return "  " + number_in(figure->time.median * 1e6, 7) + "  " +
           number_in(row.algorithm_bandwidth(*figure) / 1e9, 6) + "  " +
           number_in(row.bus_bandwidth(*figure) / 1e9, 6) + "  " + wrong;
}

std::string share_column(const std::optional<Figure>& figure) {
    if (!figure || !figure->copy) { return program::formatted("  %7s", "N/A"); }
    return program::formatted("  %7.1f", 100 * figure->copy->time.median / figure->time.median);
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

std::string verb_head(VerbKind verb, const Options& o) {
    const char* const line = "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ";
    const auto end = [&](const char* out, const char* in) {
        return o.shares ? program::formatted(" %7s  %7s\n", out, in) : std::string("\n");
    };
    return "#\n# Collective test starting: " + std::string(verb_names[static_cast<std::size_t>(verb)]) + "\n#\n" +
           program::formatted(
               "# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          ", "", "",
               "", "", "") +
           (o.shares ? "     of copy (%)\n" : "\n") +
           program::formatted(line, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
                              "time", "algbw", "busbw", "#wrong") +
           end("out", "in") +
           program::formatted(line, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                              "(GB/s)", "") +
           end("", "");
}

std::string verb_end(VerbKind verb, const std::vector<Row>& rows) {
    std::uint64_t wrong = 0;
    double sum = 0;
    std::size_t count = 0;
    for (const Row& row : rows) {
        if (row.verb != verb) { continue; }
        wrong += row.wrong();
        for (const std::optional<Figure>& figure : {row.out_of_place, row.in_place}) {
            if (!figure) { continue; }
            sum += row.bus_bandwidth(*figure) / 1e9;
            ++count;
        }
    }
    return "# Out of bounds values : " + std::to_string(wrong) + (wrong == 0 ? " OK\n" : " FAILED\n") +
           program::formatted("# Avg bus bandwidth    : %g \n", sum / static_cast<double>(count)) +
           "#\n# Collective test concluded: " + std::string(verb_names[static_cast<std::size_t>(verb)]) + "\n";
}

std::string table_row(const Row& row, const Options& o) {
    const std::string type(row.facts.moves_data ? type_names[static_cast<std::size_t>(row.type)] : "none");
    const std::string op(row.facts.reduces ? op_names[static_cast<std::size_t>(row.op)] : "none");
    const std::string root = row.facts.has_root ? std::to_string(o.root) : "-1";
    return program::formatted("%12llu  %12llu  %8s  %6s  %6s", static_cast<unsigned long long>(row.bytes),
                              static_cast<unsigned long long>(row.count), type.c_str(), op.c_str(), root.c_str()) +
           figure_columns(row, row.out_of_place) + figure_columns(row, row.in_place) +
           (o.shares ? share_column(row.out_of_place) + share_column(row.in_place) : "") + "\n";
}

namespace {

using nlohmann::json;

json figure_json(const Row& row, const std::optional<Figure>& figure) {
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

json row_json(const Row& row, const Options& options) {
    json object{{"verb", verb_names[static_cast<std::size_t>(row.verb)]}, {"size", row.bytes}, {"count", row.count}};
    object["type"] = row.facts.moves_data ? json(type_names[static_cast<std::size_t>(row.type)]) : json(nullptr);
    object["redop"] = row.facts.reduces ? json(op_names[static_cast<std::size_t>(row.op)]) : json(nullptr);
    object["root"] = row.facts.has_root ? json(options.root) : json(nullptr);
    object["bus_factor"] = row.facts.moves_data ? json(row.facts.bus_factor) : json(nullptr);
    object["out_of_place"] = figure_json(row, row.out_of_place);
    object["in_place"] = figure_json(row, row.in_place);
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
        measured.push_back(row_json(row, options));
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
