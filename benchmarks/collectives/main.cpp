// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../common/attempt.hpp"
#include "../common/gnuplot.hpp"
#include "../common/output_file.hpp"
#include "command_line.hpp"
#include "engines.hpp"
#include "json_report.hpp"
#include "plot.hpp"
#include "processes.hpp"
#include "table.hpp"

namespace {

using namespace benchmarks;

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

/// What has to be there before anything is measured.
struct Prepared {
    Options options;
    std::unique_ptr<OutputFile> json;  // of the process that reports
    std::unique_ptr<OutputFile> plot;
};

std::optional<Prepared> prepare(int count, char** arguments, const Processes& processes) {
    std::string help;
    const auto options = parse_command_line(count, arguments, help, processes.count());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    Prepared prepared{*options, nullptr, nullptr};
    if (processes.reports()) {
        if (!options->plot.empty()) { require_plotter(options->plot); }
        prepared.json = std::make_unique<OutputFile>("--json", options->json);
        prepared.plot = std::make_unique<OutputFile>("--plot", options->plot);
    }
    return prepared;
}

std::vector<Row> measure_and_print(const Options& options) {
    std::vector<Row> rows;
    const RowSink sink = [&](const Row& row) {
        if (rows.empty() || rows.back().verb != row.verb) { print(verb_head(row.verb)); }
        print(table_row(row, options));
        rows.push_back(row);
    };
    switch (options.engine) {
        case EngineKind::self:
            run_on_self(options, sink);
            break;
        case EngineKind::threads:
            run_on_threads(options, sink);
            break;
        case EngineKind::mpi:
            run_on_mpi(options, sink);
            break;
    }
    return rows;
}

void measure_and_report(const Prepared& prepared, const Processes& processes) {
    const Options& options = prepared.options;
    const Machine machine = Machine::read();
    const std::string mpi = options.engine == EngineKind::mpi ? mpi_version() : "";
    if (processes.reports()) { print(table_head(options, machine, mpi)); }
    const std::vector<Row> rows = measure_and_print(options);
    if (!processes.reports()) { return; }

    if (prepared.json->wanted()) { prepared.json->write(json_report(options, machine, mpi, rows)); }
    if (prepared.plot->wanted()) {
        run_gnuplot(options.plot, 1100, 900, plot_script(options, rows));
        prepared.plot->keep();
    }
    std::uint64_t wrong = 0;
    for (const Row& row : rows) { wrong += row.wrong(); }
    if (wrong > 0) { throw std::runtime_error("wrong data: " + std::to_string(wrong) + " values; see #wrong"); }
}

int run(int count, char** arguments) {
    const Processes processes(count, arguments);
    std::optional<Prepared> prepared;
    const Failure unprepared = attempt([&] { prepared = prepare(count, arguments, processes); });
    // No process starts unless all can; what all of them find wrong is said once.
    const Processes::Agreement agreed = processes.agree(unprepared.code);
    if (agreed.speaks) { print_failure("collectives", unprepared.text); }
    if (agreed.code != EXIT_SUCCESS || !prepared) { return agreed.code; }

    const Failure failed = attempt([&] { measure_and_report(*prepared, processes); });
    if (failed.code != EXIT_SUCCESS) { print_failure("collectives", failed.text); }
    return failed.code;
}

}  // namespace

int main(int count, char** arguments) {
    int code = EXIT_FAILURE;
    const Failure failed = attempt([&] { code = run(count, arguments); });
    if (failed.code == EXIT_SUCCESS) { return code; }
    print_failure("collectives", failed.text);
    return failed.code;
}
