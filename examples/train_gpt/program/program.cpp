// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "../../common/attempt.hpp"
#include "../../common/gnuplot.hpp"
#include "../../common/openblas.hpp"
#include "../../common/output_file.hpp"
#include "../../common/processes.hpp"
#include "../../common/run_together.hpp"
#include "../../common/stop_signals.hpp"
#include "../../common/text_format.hpp"
#include "command_line.hpp"
#include "job.hpp"
#include "plan_summary.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "start.hpp"

namespace train_gpt {

namespace {

using namespace program;

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

/// Refuses a run that the limit of the address space (ulimit -v) is too small for. OpenBLAS (0.3.21) would ask for
/// its memory again and again, without end.
/// @throws std::runtime_error with what the ranks of this process take
void require_address_space(const Options& options, std::uint64_t planned_bytes_per_rank) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) { return; }
    constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
    // Of each thread that multiplies: OpenBLAS's buffer, malloc's arena, the stack.
    constexpr std::uint64_t thread = (128 + 64 + 8) * mebibyte;
    const std::uint64_t ranks = options.engine == EngineKind::mpi ? 1 : options.mesh.world();
    // Of this process: above all the threads that OpenBLAS made before main().
    constexpr std::uint64_t process = 160 * mebibyte;
    const std::uint64_t needed = process + ranks * (thread + planned_bytes_per_rank);
    void* const memory = mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::runtime_error("the limit of the address space (ulimit -v) leaves less than the " +
                                 bytes_text(needed) + " that this run takes: " + bytes_text(process) +
                                 " for the process, and for each of its ranks " + bytes_text(planned_bytes_per_rank) +
                                 " as planned and " + bytes_text(thread) + " for a thread that multiplies");
    }
    munmap(memory, needed);
}

/// What has to be there before training starts; empty when there is nothing to train.
struct Prepared {
    Options options;
    PlanSummary plan;
    Inputs inputs;
    std::map<std::string_view, OutputFile> files;  // of Options::outputs; unwanted but in the process that reports

    const OutputFile& file(std::string_view flag) const { return files.at(flag); }
};

std::string text_line(const Options& options, const Text& text) {
    return "text:  " + text.source + ", " + std::to_string(text.tokens.size()) + " " + std::string(options.unit()) +
           "\n";
}

std::optional<Prepared> prepare(int count, const char* const* arguments, const Processes& processes) {
    std::string help;
    const auto options = parse_command_line(count, arguments, help, processes.count(), processes.ranks_per_host(),
                                            processes.spare_processor());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    const bool on_hosts = options->engine != EngineKind::nccl;
    Prepared prepared{*options, on_hosts ? make_plan(*options) : plan_on_nccl(*options), {}, {}};
    const bool trains = options->action == Options::Action::train;
    require(options->trace.empty() || prepared.plan.chosen.schedule, "--trace: with --schedule ",
            options->schedule.text(), " this step has no schedule (", prepared.plan.chosen.why,
            "); expected --schedule prefetch");
    if (trains && on_hosts) { require_address_space(*options, prepared.plan.bytes_per_rank()); }
    prepared.inputs = read_inputs(*options);
    if (processes.reports() && !options->plot.empty()) { require_plotter(options->plot); }
    for (const auto& [flag, name] : options->outputs()) {
        const OutputFile file(flag, processes.reports() ? name : std::string());
        for (const auto& [other, before] : prepared.files) { require_two_files(before, file); }
        prepared.files.emplace(flag, file);
    }
    if (processes.reports()) {
        // Before all agree to begin: the others would wait for a process that fails here.
        print(describe_plan(*options, prepared.plan) + (trains ? text_line(*options, prepared.inputs.text) : "") +
              (trains && on_hosts ? blas().text() : "") + prepared.inputs.start.notes);
        const OutputFile& schedule = prepared.file("--schedule-out");
        if (trains && schedule.wanted()) { schedule.write(prepared.plan.schedule_text); }
    }
    if (!trains) { return std::nullopt; }
    return prepared;
}

Results train_and_show(const Prepared& prepared, bool reports) {
    const Options& options = prepared.options;
    const Start& start = prepared.inputs.start;
    Job job{options, prepared.inputs.text.tokens};
    job.start = start;
    job.identity = prepared.inputs.identity;
    job.chosen = prepared.plan.chosen;
    job.encoding = prepared.inputs.text.encoding;
    std::optional<StopSignals> signals;
    const bool on_hosts = options.engine != EngineKind::nccl;
    // Ranks agree on a signal in each step, which steps on GPUs do not wait for.
    if (on_hosts) {
        signals.emplace();
        job.signal = StopSignals::came;
    }
    job.trained = [&] { signals.reset(); };
    const auto train_there = [&] { return on_hosts ? train(job) : train_on_nccl(job); };
    if (!reports) { return train_there(); }
    std::ofstream hashes;
    if (prepared.file("--hashes").wanted()) {
        hashes.open(options.hashes);
        // Each step's at once: what a run had hashed when it failed is what it is looked at for.
        job.hashed = [&](std::string_view lines) {
            hashes << lines << std::flush;
            if (!hashes) { throw std::runtime_error("--hashes '" + options.hashes + "': cannot be written"); }
        };
        job.hashed(hashes_begin);
    }
    Progress progress(options, stdout, start.first_step);
    job.after_step = [&](const StepReport& report) { progress.after_step(report); };
    return train_there();
}

void write_results(const Prepared& prepared, const Results& results) {
    const Options& options = prepared.options;
    const std::size_t first_step = prepared.inputs.start.first_step;
    if (const OutputFile& json = prepared.file("--json"); json.wanted()) {
        json.write(json_report(options, prepared.plan, results, first_step));
    }
    const OutputFile &trace = prepared.file("--trace"), &plot = prepared.file("--plot");
    if (trace.wanted() && !results.trace.empty()) { trace.write(results.trace); }
    if (plot.wanted() && !results.losses.empty()) {
        const std::string title = "train_gpt " + options.policy.text() + " on " + options.mesh.describe();
        plot.write(plot_losses(options.plot, title, results.losses, first_step));
    }
}

void train_and_report(const Prepared& prepared, const Processes& processes) {
    const Options& options = prepared.options;
    const bool reports = processes.reports();
    const auto before = program::ResidentMemory::read();
    Results results = train_and_show(prepared, reports);
    results.before = before;
    results.after = program::ResidentMemory::read();
    if (!reports) { return; }

    if (results.signal == 0) { print(summary(options, prepared.plan, results)); }
    write_results(prepared, results);
    if (results.signal == 0) { return; }
    const std::string text =
        formatted("%s after step %zu of %zu: loss %.4f", StopSignals::name(results.signal),
                  prepared.inputs.start.first_step + results.losses.size(), options.steps, results.losses.back());
    std::string where = results.saved.empty() ? "" : ", saved in " + results.saved;
    for (const std::string& file : {options.json, options.plot}) {
        if (!file.empty()) { where += ", written to " + file; }
    }
    std::fprintf(stderr, "train_gpt: interrupted by %s%s\n", text.c_str(), where.c_str());
    if (options.save.empty()) {  // ends as without a handler
        std::fflush(nullptr);
        std::raise(results.signal);
    }
}

}  // namespace

int run_program(int count, const char* const* arguments) {
    return program::run_together(
        "train_gpt", count, arguments,
        [&](const Processes& processes) { return prepare(count, arguments, processes); }, train_and_report,
        "not enough memory for this run; --plan prints what it needs");
}

}  // namespace train_gpt
