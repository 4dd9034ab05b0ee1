// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "../common/gnuplot.hpp"
#include "../common/output_file.hpp"
#include "../common/processes.hpp"
#include "../common/run_together.hpp"
#include "program/command_line.hpp"
#include "program/job.hpp"
#include "program/plan_summary.hpp"
#include "program/plot.hpp"
#include "program/progress.hpp"
#include "program/report.hpp"
#include "program/text.hpp"

namespace {

using namespace train_gpt;
using namespace program;

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

/// What has to be there before training starts; empty when there is nothing to train.
struct Prepared {
    Options options;
    PlanSummary plan;
    Text text;
    std::unique_ptr<OutputFile> json;  // of the process that reports
    std::unique_ptr<OutputFile> plot;
};

/// What a plan does without, where it was asked for.
std::string not_written(const Options& options) {
    return options.json.empty() && options.plot.empty()
               ? ""
               : "nothing written to --json or --plot: --plan does not train\n";
}

std::optional<Prepared> prepare(int count, char** arguments, const Processes& processes) {
    std::string help;
    const auto options = parse_command_line(count, arguments, help, processes.count());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    Prepared prepared{*options, make_plan(*options), {}, nullptr, nullptr};
    const bool trains = options->action == Options::Action::train;
    if (trains || !options->text.empty()) { prepared.text = read_text(options->text, options->model.sequence); }
    if (processes.reports()) {
        if (!options->plot.empty()) { require_plotter(options->plot); }
        prepared.json = std::make_unique<OutputFile>("--json", options->json);
        prepared.plot = std::make_unique<OutputFile>("--plot", options->plot);
        require_two_files(*prepared.json, *prepared.plot);
        if (!trains) { print(describe_plan(*options, prepared.plan) + not_written(*options)); }
    }
    if (!trains) { return std::nullopt; }
    return prepared;
}

void train_and_report(const Prepared& prepared, const Processes& processes) {
    const Options& options = prepared.options;
    const bool reports = processes.reports();
    if (reports) {
        print(describe_plan(options, prepared.plan) + "text:  " + prepared.text.source + ", " +
              std::to_string(prepared.text.bytes.size()) + " bytes\n");
    }
    Progress progress(options, Progress::style_of_standard_output());
    Job job{options, prepared.text.bytes, [&](const StepReport& report) { progress.after_step(report); },
            KeepParameters::no};
    ResidentMemories resident;
    resident.before = ResidentMemory::read();
    const Results results = train(job);
    resident.after = ResidentMemory::read();
    if (!reports) { return; }

    print(summary(options, prepared.plan, results));
    if (prepared.json->wanted()) { prepared.json->write(json_report(options, prepared.plan, results, resident)); }
    if (prepared.plot->wanted()) {
        const std::string title = "train_gpt " + options.policy.text() + " on " + options.mesh.describe();
        prepared.plot->write(plot_losses(options.plot, title, results.losses));
    }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_together(
        "train_gpt", count, arguments,
        [&](const Processes& processes) { return prepare(count, arguments, processes); }, train_and_report,
        "not enough memory for this run; --plan prints what it needs");
}
