// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "program/command_line.hpp"
#include "program/input_error.hpp"
#include "program/job.hpp"
#include "program/output_file.hpp"
#include "program/plan_summary.hpp"
#include "program/plot.hpp"
#include "program/progress.hpp"
#include "program/report.hpp"
#include "program/text.hpp"

namespace {

using namespace train_gpt;

constexpr int bad_input = 2;

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

int run(int count, char** arguments) {
    std::string help;
    const auto options = parse_command_line(count, arguments, help);
    if (!options) {
        print(help);
        return EXIT_SUCCESS;
    }
    const PlanSummary plan = make_plan(*options);
    if (options->action == Options::Action::plan) {
        print(describe_plan(*options, plan));
        return EXIT_SUCCESS;
    }

    const Text text = read_text(options->text, options->model.sequence);
    if (!options->plot.empty()) { require_plotter(); }
    OutputFile json("--json", options->json);
    OutputFile plot("--plot", options->plot);
    print(describe_plan(*options, plan) + "text:  " + text.source + ", " + std::to_string(text.bytes.size()) +
          " bytes\n");

    Progress progress(*options, Progress::style_of_standard_output());
    Job job{*options, text.bytes, [&](const StepReport& report) { progress.after_step(report); }, KeepParameters::no};
    ResidentMemories resident;
    resident.before = ResidentMemory::read();
    const Results results = train(job);
    resident.after = ResidentMemory::read();

    print(summary(*options, plan, results));
    if (json.wanted()) { json.write(json_report(*options, plan, results, resident)); }
    if (plot.wanted()) {
        plot_losses(plot.name(), "train_gpt " + options->policy_text() + " on " + options->mesh.describe(),
                    results.losses);
        plot.keep();
    }
    return EXIT_SUCCESS;
}

int fail(const char* what, int code) {
    // On a line of its own, whatever the progress line left behind.
    std::fflush(stdout);
    std::fprintf(stderr, "train_gpt: error: %s\n", what);
    return code;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count, arguments);
    } catch (const InputError& error) { return fail(error.what(), bad_input); } catch (const std::bad_alloc&) {
        return fail("not enough memory for this run; --plan prints what it needs", EXIT_FAILURE);
    } catch (const std::exception& error) { return fail(error.what(), EXIT_FAILURE); }
}
