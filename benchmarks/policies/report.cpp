// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/table_text.hpp"

namespace benchmarks::policies {

namespace {

std::string us(double seconds) { return four_digits(seconds * 1e6); }
std::string mib(double bytes) { return four_digits(bytes / (1U << 20U)); }
std::string percent(double share) { return program::formatted("%.1f", 100 * share); }

std::string name_of(program::PolicyKind policy, std::size_t shard_group) {
    const std::string name(program::policy_names[static_cast<std::size_t>(policy)]);
    return program::has_groups(policy) ? name + "<" + std::to_string(shard_group) + ">" : name;
}

std::string compute_text(const Options& o) {
    return o.tokens
               ? program::formatted(
                     "%llu tokens a microbatch at %g GFLOP/s: 2 operations for each element and token "
                     "forward, 4 backward",
                     static_cast<unsigned long long>(*o.tokens), o.gflops)
               : program::formatted("%g us forward for each group and microbatch, twice that backward", o.compute_us);
}

std::string slow_text(const Options& o) {
    if (o.slow_percent <= 0) { return ""; }
    return program::formatted(", busy work of %s %g %% longer", o.slow_in_turns ? "a rank in turns" : "rank 0",
                              o.slow_percent);
}

std::string overlap_text(const Options& o) {
    if (!o.overlaps()) { return ""; }
    const std::string how = ", threads communicate meanwhile";
    return o.overlaps({}) ? how : how + " where a schedule is followed";
}

std::string model_head(const Options& o) {
    return "# model:   " + o.model + ": " + counted(o.groups.size(), "group") + ", " + std::to_string(o.numel()) +
           " elements, " + std::string(element_names[static_cast<std::size_t>(o.element)]) +
           "\n# step:    " + std::to_string(o.microbatches) +
           (o.microbatches == 1 ? " microbatch" : " microbatches") + ", " +
           std::string(optimizer_names[static_cast<std::size_t>(o.optimizer)]) + ", prefetch " +
           (o.prefetch ? "on" : "off") + overlap_text(o) + slow_text(o) + "\n# compute: busy work" +
           (o.work_elsewhere ? " that leaves the processor free, " : ", ") + compute_text(o) + "\n";
}

/// A policy with what its steps follow.
std::string label_of(const Row& row) {
    return name_of(row.policy, row.shard_group) + (row.schedule == "none" ? "" : "," + row.schedule);
}

/// Characters of the widest text, or of the least column.
template <class Text>
int width_of(const std::vector<Row>& rows, std::size_t least, const Text& text) {
    for (const Row& row : rows) { least = std::max(least, text(row).size()); }
    return static_cast<int>(least);
}

std::string policy_line(const Row& row, int width) {
    const VerbTraffic all = row.total();
    const auto error = row.prediction_error();
    return program::formatted("  %*s %9s %9s %7.0f %9s %9s %9s %7s %9s %9s %7s", width, label_of(row).c_str(),
                              mib(static_cast<double>(row.peak_bytes)).c_str(),
                              mib(static_cast<double>(row.planned_bytes)).c_str(), all.calls, mib(all.bytes).c_str(),
                              us(row.step.median).c_str(), us(row.step.p99).c_str(), percent(row.exposed()).c_str(),
                              us(row.compute.median).c_str(), us(row.communication.median).c_str(),
                              program::formatted("%.1e", row.difference).c_str()) +
           program::formatted(" %9s %7s\n", row.predicted ? us(*row.predicted).c_str() : "-",
                              error ? program::formatted("%+.0f", 100 * *error).c_str() : "-");
}

std::string verb_lines(const Row& row, int width) {
    std::string text;
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const VerbTraffic& t = row.traffic[i];
        if (t.calls == 0 && t.theory.calls == 0 && t.planned_calls == 0) { continue; }
        text += program::formatted("# %*s %15s %7.0f %14.0f %14.0f %14.0f %14.0f\n", width, label_of(row).c_str(),
                                   std::string(shardkit::name(step_verbs[i])).c_str(), t.calls, t.bytes,
                                   t.theory.bytes, t.planned_bytes, t.across);
    }
    return text;
}

/// Of schedules, beside the step without; empty where there are none.
std::string schedule_table(const std::vector<Row>& rows) {
    if (std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.schedule == "none"; })) { return ""; }
    const int width = width_of(rows, 15, [](const Row& row) { return row.schedule; });
    std::string text = program::formatted("#\n#%19s %*s %9s %9s %9s %9s %7s\n#%19s %*s %9s %9s %9s %9s %7s\n",
                                          "policy", width, "schedule", "peak", "step", "exposed", "simulated",
                                          "error", "", width, "", "(MiB)", "(us)", "of comm", "(us)", "(%)");
    for (const Row& row : rows) {
        const auto error = row.simulation_error();
        text += program::formatted(
            "#%19s %*s %9s %9s %9s %9s %7s\n", name_of(row.policy, row.shard_group).c_str(), width,
            row.schedule.c_str(), mib(static_cast<double>(row.peak_bytes)).c_str(), us(row.step.median).c_str(),
            program::formatted("%.2f", row.exposed_share()).c_str(), row.simulated ? us(*row.simulated).c_str() : "-",
            error ? program::formatted("%+.0f", 100 * *error).c_str() : "-");
    }
    return text;
}

}  // namespace

std::string table_head(const Options& o, const Machine& machine, const std::string& mpi) {
    const std::string engine(engine_names[static_cast<std::size_t>(o.engine)]);
    std::size_t most = 0;
    for (const program::MeshExtents& mesh : o.meshes) { most = std::max(most, mesh.world()); }
    if (!o.predict.empty()) { return "# shardkit policies: PREDICTED, nothing here was measured\n" + model_head(o); }
    return "# shardkit policies: engine " + engine + (mpi.empty() ? "" : " (" + mpi + ")") + "\n" + model_head(o) +
           machine_head(machine, o.pin, most) + "# method:  warm-up " + counted(o.warmup, "step") + ", " +
           counted(o.rounds, "round") + " in which all policies make " +
           (o.steps == 1 ? "a step, its computation and its communication"
                         : counted(o.steps, "step") + ", their computation and their communication") +
           " in turns; median, all ranks\n";
}

std::string links_head(const Links& links) {
    std::string text = "# links:   " + links.source + "\n";
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const auto verb = static_cast<std::size_t>(step_verbs[i]);
        const auto link = [](const shardkit::planner::LinkModel& l) {
            return four_digits(l.latency * 1e6) + " us, " +
                   (std::isinf(l.bandwidth) ? "no limit" : four_digits(l.bandwidth / 1e9) + " GB/s");
        };
        text += program::formatted("#          %-14s ", std::string(shardkit::name(step_verbs[i])).c_str()) +
                link(links.within[verb]);
        if (links.across[verb] != links.within[verb]) { text += "; across nodes " + link(links.across[verb]); }
        if (links.fitted) {
            text += program::formatted("; fit of %zu times, %.0f %% off on average", links.fitted->verbs[i].samples,
                                       100 * links.fitted->verbs[i].error);
        }
        text += "\n";
    }
    return text;
}

std::string mesh_table(const std::vector<Row>& rows) {
    const program::MeshExtents mesh = rows.front().mesh;
    std::string text = "#\n# mesh " + mesh.describe() + ", " + counted(mesh.world(), "rank") + "\n";
    const int width = width_of(rows, 16, label_of);
    text += program::formatted("# %*s %9s %9s %7s %9s %9s %9s %7s %9s %9s %7s %9s %7s\n", width, "policy", "peak",
                               "planned", "calls", "moved", "step", "p99", "exposed", "compute", "comm", "differs",
                               "predicted", "error");
    text += program::formatted("# %*s %9s %9s %7s %9s %9s %9s %7s %9s %9s %7s %9s %7s\n", width, "", "(MiB)", "(MiB)",
                               "", "(MiB)", "(us)", "(us)", "(%)", "(us)", "(us)", "", "comm (us)", "(%)");
    for (const Row& row : rows) { text += policy_line(row, width); }
    if (mesh.world() < 2) { return text + "# one rank: no collectives\n"; }
    text += "#\n" + program::formatted("# %*s %15s %7s %14s %14s %14s %14s\n", width, "policy", "collective", "calls",
                                       "moved (B)", "theory (B)", "planned (B)", "across (B)");
    for (const Row& row : rows) { text += verb_lines(row, width); }
    return text + schedule_table(rows);
}

std::string prediction_table(const Options& o, const std::vector<PredictedRow>& rows) {
    std::string text = "# nodes:   of " + counted(o.links.ranks_per_node, "rank") + "\n";
    for (const std::string_view line : assumptions) { text += "# assumes: " + std::string(line) + "\n"; }
    text += program::formatted("#\n# %12s %6s %19s %9s %7s %9s %11s %11s %11s %11s %13s\n", "mesh", "nodes", "policy",
                               "memory", "calls", "moved", "comm", "compute", "step, full", "step, no", "exposed");
    text += program::formatted("# %12s %6s %19s %9s %7s %9s %11s %11s %11s %11s %13s\n", "", "", "", "(MiB)", "",
                               "(MiB)", "(us)", "(us)", "overlap", "overlap", "(%)");
    for (const PredictedRow& row : rows) {
        text += program::formatted(
            "  %12s %6zu %19s %9s %7.0f %9s %11s %11s %11s %11s %13s\n", row.mesh.describe().c_str(), row.nodes,
            name_of(row.policy, row.shard_group).c_str(), mib(static_cast<double>(row.memory)).c_str(), row.calls,
            mib(row.bytes).c_str(), us(row.communication).c_str(), us(row.compute).c_str(),
            us(row.full_overlap()).c_str(), us(row.no_overlap()).c_str(),
            (percent(row.least_exposed()) + "-" + percent(row.most_exposed())).c_str());
    }
    return text;
}

namespace {

using nlohmann::json;

json step_json(const Summary& seconds) {
    return {{"median", seconds.median * 1e6}, {"min", seconds.min * 1e6}, {"p99", seconds.p99 * 1e6}};
}

json to_json(const program::MeshExtents& mesh) { return mesh.describe(); }

json to_json(const Row& row) {
    json collectives = json::array();
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const VerbTraffic& t = row.traffic[i];
        collectives.push_back({{"verb", shardkit::name(step_verbs[i])},
                               {"calls", t.calls},
                               {"theory_calls", t.theory.calls},
                               {"planned_calls", t.planned_calls},
                               {"bytes", t.bytes},
                               {"theory_bytes", t.theory.bytes},
                               {"planned_bytes", t.planned_bytes},
                               {"across_bytes", t.across},
                               {"theory_across_bytes", t.theory.across},
                               {"planned_across_bytes", t.planned_across}});
    }
    const auto error = row.prediction_error();
    const auto simulation_error = row.simulation_error();
    return {{"mesh", to_json(row.mesh)},
            {"ranks", row.mesh.world()},
            {"policy", program::policy_names[static_cast<std::size_t>(row.policy)]},
            {"shard_group", row.shard_group},
            {"schedule", row.schedule},
            {"step_us", step_json(row.step)},
            {"compute_us", step_json(row.compute)},
            {"communication_us", step_json(row.communication)},
            {"exposed", row.exposed()},
            {"exposed_share", row.exposed_share()},
            {"simulated_step_us", row.simulated ? json(*row.simulated * 1e6) : json(nullptr)},
            {"simulation_error", simulation_error ? json(*simulation_error) : json(nullptr)},
            {"calls", row.total().calls},
            {"bytes", row.total().bytes},
            {"collectives", std::move(collectives)},
            {"peak_bytes", row.peak_bytes},
            {"planned_peak_bytes", row.planned_bytes},
            {"difference", std::isfinite(row.difference) ? json(row.difference) : json("not a number")},
            {"difference_bound", row.bound},
            {"predicted_communication_us", row.predicted ? json(*row.predicted * 1e6) : json(nullptr)},
            {"prediction_error", error ? json(*error) : json(nullptr)}};
}

json to_json(const PredictedRow& row) {
    return {{"mesh", to_json(row.mesh)},
            {"ranks", row.mesh.world()},
            {"nodes", row.nodes},
            {"policy", program::policy_names[static_cast<std::size_t>(row.policy)]},
            {"shard_group", row.shard_group},
            {"memory_bytes", row.memory},
            {"calls", row.calls},
            {"bytes", row.bytes},
            {"compute_us", row.compute * 1e6},
            {"communication_us", row.communication * 1e6},
            {"step_full_overlap_us", row.full_overlap() * 1e6},
            {"step_no_overlap_us", row.no_overlap() * 1e6},
            {"least_exposed", row.least_exposed()},
            {"most_exposed", row.most_exposed()}};
}

json to_json(const shardkit::planner::LinkModel& link) {
    const bool limited = std::isfinite(link.bandwidth);
    return {{"latency_us", link.latency * 1e6}, {"gb_s", limited ? json(link.bandwidth / 1e9) : json(nullptr)}};
}

json to_json(const Links& links) {
    json verbs = json::array();
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        const auto v = static_cast<std::size_t>(step_verbs[i]);
        json verb{{"verb", shardkit::name(step_verbs[i])},
                  {"within_node", to_json(links.within[v])},
                  {"across_nodes", to_json(links.across[v])}};
        verb["samples"] = links.fitted ? json(links.fitted->verbs[i].samples) : json(nullptr);
        verb["fit_error"] = links.fitted ? json(links.fitted->verbs[i].error) : json(nullptr);
        verbs.push_back(std::move(verb));
    }
    return {{"source", links.source}, {"verbs", std::move(verbs)}};
}

json model_json(const Options& o) {
    json groups = json::array();
    for (const GroupSize& group : o.groups) { groups.push_back({{"path", group.path}, {"numel", group.numel}}); }
    return {{"description", o.model},
            {"numel", o.numel()},
            {"groups", std::move(groups)},
            {"type", element_names[static_cast<std::size_t>(o.element)]}};
}

template <class Rows>
json array_of(const Rows& rows) {
    json array = json::array();
    for (const auto& row : rows) { array.push_back(to_json(row)); }
    return array;
}

}  // namespace

std::string json_report(const Options& o, const Machine& machine, const std::string& mpi, const Links* links,
                        const std::vector<Row>& rows, const std::vector<PredictedRow>& predicted) {
    json wrong = json::array();
    for (const Row& row : rows) {
        for (const std::string& text : row.wrong()) { wrong.push_back(text); }
    }
    json report{{"engine", engine_names[static_cast<std::size_t>(o.engine)]},
                {"mpi", mpi.empty() ? json(nullptr) : json(mpi)},
                {"pinned", o.pin},
                {"warmup", o.warmup},
                {"rounds", o.rounds},
                {"steps", o.steps},
                {"model", model_json(o)},
                {"optimizer", optimizer_names[static_cast<std::size_t>(o.optimizer)]},
                {"microbatches", o.microbatches},
                {"prefetch", o.prefetch},
                {"overlap", o.overlaps()},
                {"work_elsewhere", o.work_elsewhere},
                {"slow_percent", o.slow_percent},
                {"slow_in_turns", o.slow_in_turns},
                {"busy_work_us", o.busy_seconds() * 1e6},
                {"links", links != nullptr ? to_json(*links) : json(nullptr)},
                {"wrong", std::move(wrong)},
                {"rows", array_of(rows)}};
    report["predicted"] = predicted.empty() ? json(nullptr)
                                            : json{{"assumptions", assumptions},
                                                   {"ranks_per_node", o.links.ranks_per_node},
                                                   {"rows", array_of(predicted)}};
    return result_text("policies", machine, std::move(report));
}

}  // namespace benchmarks::policies
