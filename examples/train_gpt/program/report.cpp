// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "../../common/gnuplot.hpp"
#include "../../common/openblas.hpp"
#include "../../common/text_format.hpp"

namespace train_gpt {

namespace {

nlohmann::json to_json(const Options& options, const PlanSummary& plan) {
    const ChosenSchedule& chosen = plan.chosen;
    nlohmann::json json{{"name", options.schedule.text()}, {"follows", chosen.follows}, {"why", chosen.why}};
    if (!chosen.schedule) { return json; }
    json["operations"] = chosen.schedule->size();
    json["hash"] =
        program::formatted("%016llx", static_cast<unsigned long long>(shardkit::schedule::hash(*chosen.schedule)));
    json["arena_bytes"] = plan.library.memory.arena.value;
    return json;
}

/// axes -> verb -> what is called over them.
nlohmann::json by_axes(const Collectives& collectives) {
    auto object = nlohmann::json::object();
    for (const auto& [of, each] : collectives) {
        object[of.first][of.second] = {
            {"count", each.calls}, {"bytes", each.moved.value}, {"payload_bytes", each.payload.value}};
    }
    return object;
}

/// verb -> planned bytes between hosts.
nlohmann::json between_hosts(const Collectives& planned) {
    auto object = nlohmann::json::object();
    for (const auto& [of, each] : planned) {
        object[of.second] = object.value(of.second, std::uint64_t{0}) + each.between_hosts.value;
    }
    return object;
}

/// What is known of a run that made a step.
std::string summary_of_steps(const PlanSummary& plan, const Results& results) {
    std::ostringstream out;
    const double planned = static_cast<double>(plan.bytes_per_rank());
    const double measured = static_cast<double>(results.peak_bytes_per_rank);
    if (results.peak_bytes_per_rank > 0) {
        out << "peak memory per rank: " << program::bytes_text(results.peak_bytes_per_rank) << " measured, "
            << program::bytes_text(plan.bytes_per_rank()) << " planned"
            << program::formatted(" (%+.2f %%)\n", 100 * (measured / planned - 1));
        out << "collectives per rank and step, measured (mean over the ranks) and planned:\n"
            << table_of(plan.collectives, &results.collectives);
    }
    if (results.timed.communication > 0) {
        const auto& timed = results.timed;
        out << program::formatted("a step: %.3g ms, %.3g ms of it without computation; communication took %.3g ms\n",
                                  1e3 * timed.seconds, 1e3 * timed.exposed(), 1e3 * timed.communication);
    }
    out << program::formatted("loss: %.4f first, %.4f last (%+.4f)\n", results.losses.front(), results.losses.back(),
                              results.losses.back() - results.losses.front());
    out << "speed: " << program::grouped(static_cast<std::uint64_t>(results.tokens_per_second)) << " tokens/s\n";
    return out.str();
}

}  // namespace

std::string json_report(const Options& options, const PlanSummary& plan, const Results& results,
                        std::size_t first_step) {
    nlohmann::json report{
        {"policy", options.policy.text()},
        {"mesh", options.mesh.describe()},
        {"engine", program::name_of(engine_names, options.engine)},
        {"dtype", program::name_of(dtype_names, options.dtype)},
        {"sequence_parallel", program::name_of(program::switch_names, options.sequence_parallel)},
        {"context", program::name_of(exchange_names, options.context)},
        {"optimizer", program::name_of(optimizer_names, options.optimizer)},
        {"world", options.mesh.world()},
        {"slices", options.slices},
        {"parameters", plan.library.numel},
        {"schedule", to_json(options, plan)},
        {"steps", options.steps},
        {"first_step", first_step},
        {"interrupted", results.signal != 0},
        {"losses", results.losses},
        {"grad_norms", results.grad_norms},
        {"tokens_per_second", results.tokens_per_second},
        {"planned_bytes_per_rank", plan.bytes_per_rank()},
        {"planned_collectives_by_axes", by_axes(plan.collectives)},
        {"planned_bytes_between_hosts", between_hosts(plan.collectives)},
    };
    if (options.engine != EngineKind::nccl) {
        const program::Blas& blas = program::blas();
        report["blas"] = {{"library", blas.library},
                          {"kernel", blas.kernel},
                          {"older_than_processor", blas.older_than_processor()}};
    }
    if (results.signal != 0) { return report.dump(2) + "\n"; }
    report["resident_bytes_before"] = results.before.now;
    report["resident_bytes_peak"] = results.after.peak;
    if (results.peak_bytes_per_rank > 0) {
        report.update({
            {"peak_bytes_per_rank", results.peak_bytes_per_rank},
            {"collectives_by_axes", by_axes(results.collectives)},
        });
    }
    if (results.peak_bytes_per_rank > 0 && options.engine != EngineKind::nccl) {
        report.update({
            {"allocations_per_steady_step", results.allocations_per_steady_step},
            {"multiply_adds_of_layers", results.work.layers},
            {"multiply_adds_of_attention",
             {{"least", results.work.attention_least}, {"most", results.work.attention_most}}},
        });
    }
    if (results.timed_steps > 0) {
        report["timed_steps"] = {{"steps", results.timed_steps},
                                 {"seconds", results.timed.seconds},
                                 {"communication_seconds", results.timed.communication},
                                 {"exposed_seconds", results.timed.exposed()},
                                 {"exposed_share", results.timed.exposed_share()}};
    }
    if (options.sample > 0) {
        // Generated bytes need not be UTF-8, JSON text must be.
        report["sample_bytes"] = std::vector<std::uint8_t>(results.sample.begin(), results.sample.end());
    }
    return report.dump(2) + "\n";
}

std::string summary(const Options& options, const PlanSummary& plan, const Results& results) {
    std::string text = results.losses.empty() ? "no step is left to train\n" : summary_of_steps(plan, results);
    if (!results.saved.empty()) { text += "saved: " + results.saved + "\n"; }
    if (options.sample > 0) { text += "sample:\n" + program::printable(results.sample) + "\n"; }
    return text;
}

std::string plot_losses(const std::string& file, const std::string& title, const std::vector<double>& losses,
                        std::size_t first_step) {
    const bool one = losses.size() == 1;
    std::string script =
        "set title " + program::gnuplot_text(title) + "\nset xlabel 'step'\nset ylabel 'loss (nats per byte)'\n";
    // Of a single point gnuplot chooses no ranges without a warning.
    if (one) {
        script += program::formatted("set xrange [%zu:%zu]\nset yrange [%.9g:%.9g]\n", first_step, first_step + 2,
                                     losses[0] - 1, losses[0] + 1);
    }
    script += program::formatted("plot '-' with %s linetype 1\n", one ? "points" : "lines");
    for (std::size_t i = 0; i < losses.size(); ++i) {
        script += program::formatted("%zu %.9g\n", first_step + i + 1, losses[i]);
    }
    return program::gnuplot_picture(file, {900, 540, script + "e\n"});
}

}  // namespace train_gpt
