// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include "../../examples/common/processes.hpp"
#include "../../examples/common/run_together.hpp"
#include "../common/machine.hpp"
#include "../common/result_files.hpp"
#include "options.hpp"
#include "report.hpp"
#include "rows.hpp"

namespace {

using namespace benchmarks;

/// What has to be there before anything is measured.
struct Prepared {
    Options options;
    std::optional<Gpu> gpu;
    std::optional<ResultFiles> files;  // of the process that reports
};

/// @throws InputError when the machine is too small for the buffers of the largest size and of its copy; of mpi,
/// whose ranks may be elsewhere, those of one rank count
void require_memory_for(const Options& o) {
    const std::size_t here = o.engine == EngineKind::mpi ? 1 : o.mesh.world();
    for (const Row& row : plan_rows(o, o.group_size())) {
        for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
            if (!row.facts.has(placement) || !o.wants(placement)) { continue; }
            const double buffers = 1 + 2 * row.facts.copied(placement);
            require_memory(static_cast<double>(row.bytes) * buffers * static_cast<double>(here),
                           "--maxbytes, or fewer ranks");
        }
    }
}

/// @throws InputError when the file of --peers has nothing that is measured with these options
void require_peers_for(const Options& o) {
    require_peers(o.peers, json_report(o, Machine(), "", plan_rows(o, o.group_size())));
}

std::optional<Prepared> prepare(int count, char** arguments, const program::Processes& processes) {
    std::string help;
    const auto options = parse_command_line(count, arguments, help, processes.count());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    Prepared prepared{*options, {}, {}};
    if (options->engine == EngineKind::nccl) {
        prepared.gpu = read_gpu("--engine nccl", processes.place().local_rank, processes.place().known_local_ranks());
    }
    if (options->engine != EngineKind::nccl) { require_memory_for(*options); }
    if (processes.reports()) {
        if (!options->peers.empty()) { require_peers_for(*options); }
        prepared.files.emplace(options->json, options->plot);
    }
    return prepared;
}

std::vector<Row> measure_and_print(const Options& options) {
    std::vector<Row> rows;
    const RowSink sink = [&](const Row& row) {
        if (!rows.empty() && rows.back().verb != row.verb) { print(verb_end(rows.back().verb, rows)); }
        if (rows.empty() || rows.back().verb != row.verb) { print(verb_head(row.verb, options)); }
        print(table_row(row, options));
        rows.push_back(row);
    };
    run_on[static_cast<std::size_t>(options.engine)](options, sink);
    if (!rows.empty()) { print(verb_end(rows.back().verb, rows)); }
    return rows;
}

void measure_and_report(const Prepared& prepared, const program::Processes& processes) {
    const Options& options = prepared.options;
    Machine machine = read_machine();
    machine.gpu = prepared.gpu;
    const std::string mpi = processes.mpi_version();
    if (processes.reports()) { print(table_head(options, machine, mpi)); }
    const std::vector<Row> rows = measure_and_print(options);
    if (!processes.reports()) { return; }

    prepared.files->write(json_report(options, machine, mpi, rows), options.peers);
    std::uint64_t wrong = 0;
    for (const Row& row : rows) { wrong += row.wrong(); }
    if (wrong > 0) { throw std::runtime_error("wrong data: " + std::to_string(wrong) + " values; see #wrong"); }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_together(
        "collectives", count, arguments,
        [&](const program::Processes& processes) { return prepare(count, arguments, processes); },
        measure_and_report);
}
