// SPDX-License-Identifier: Apache-2.0
#include "json_report.hpp"

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/machine_json.hpp"

namespace benchmarks {

namespace {

using nlohmann::json;

json to_json(const Row& row, const std::optional<Figure>& figure) {
    if (!figure) { return nullptr; }
    json object{{"time_us", to_json(figure->time)}, {"calls_per_round", figure->calls}};
    object["wrong"] = row.moves_data && figure->wrong ? json(*figure->wrong) : json(nullptr);
    object["algbw_gb_s"] = Row::moves(*figure) ? json(row.algorithm_bandwidth(*figure) / 1e9) : json(nullptr);
    object["busbw_gb_s"] = Row::moves(*figure) ? json(row.bus_bandwidth(*figure) / 1e9) : json(nullptr);
    if (figure->copy) {
        object["copy"] = {{"bytes_per_rank", figure->copy->bytes},
                          {"stores", figure->copy->way},
                          {"time_us", to_json(figure->copy->time)},
                          {"busbw_gb_s", row.limit(*figure) / 1e9}};
        object["share_of_copy"] = figure->copy->time.median / figure->time.median;
    } else {
        object["copy"] = nullptr;
        object["share_of_copy"] = nullptr;
    }
    return object;
}

json to_json(const Row& row, const Options& options) {
    json object{{"verb", verb_names[static_cast<std::size_t>(row.verb)]}, {"size", row.bytes}, {"count", row.count}};
    object["type"] = row.moves_data ? json(type_names[static_cast<std::size_t>(row.type)]) : json(nullptr);
    object["redop"] = row.reduces ? json(op_names[static_cast<std::size_t>(row.op)]) : json(nullptr);
    object["root"] = row.has_root ? json(options.root) : json(nullptr);
    object["bus_factor"] = row.moves_data ? json(row.bus_factor) : json(nullptr);
    object["out_of_place"] = to_json(row, row.out_of_place);
    object["in_place"] = to_json(row, row.in_place);
    return object;
}

}  // namespace

std::string json_report(const Options& options, const Machine& machine, const std::string& mpi,
                        const std::vector<Row>& rows) {
    std::uint64_t wrong = 0;
    json measured = json::array();
    for (const Row& row : rows) {
        wrong += row.wrong();
        measured.push_back(to_json(row, options));
    }
    json report{{"benchmark", "collectives"},
                {"format", 1},
                {"date", machine.date},
                {"machine", to_json(machine)},
                {"build", build_json(machine)},
                {"engine", engine_names[static_cast<std::size_t>(options.engine)]},
                {"mpi", mpi.empty() ? json(nullptr) : json(mpi)},
                {"ranks", options.mesh.world()},
                {"mesh", options.mesh.describe()},
                {"axis", options.axes_text()},
                {"groups", options.groups()},
                {"group_size", options.group_size()},
                {"pinned", options.pin},
                {"warmup", options.warmup},
                {"rounds", options.rounds},
                {"checks", options.checks},
                {"wrong", wrong},
                {"rows", std::move(measured)}};
    return json_text(report) + "\n";
}

}  // namespace benchmarks
