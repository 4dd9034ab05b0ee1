// SPDX-License-Identifier: Apache-2.0
#include "json_report.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

#include "../common/json_text.hpp"
#include "../common/machine_json.hpp"

namespace benchmarks::policies {

namespace {

using nlohmann::json;

json to_json(const Spread& seconds) {
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
                               {"planned_bytes", t.planned_bytes}});
    }
    const auto error = row.prediction_error();
    return {{"mesh", to_json(row.mesh)},
            {"ranks", row.mesh.world()},
            {"policy", program::policy_names[static_cast<std::size_t>(row.policy)]},
            {"shard_group", row.shard_group},
            {"step_us", to_json(row.step)},
            {"compute_us", to_json(row.compute)},
            {"communication_us", to_json(row.communication)},
            {"exposed", row.exposed()},
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

json to_json(const shardkit::LinkModel& link) {
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
    json report{{"benchmark", "policies"},
                {"format", 1},
                {"date", machine.date},
                {"machine", to_json(machine)},
                {"build", build_json(machine)},
                {"engine", engine_names[static_cast<std::size_t>(o.engine)]},
                {"mpi", mpi.empty() ? json(nullptr) : json(mpi)},
                {"pinned", o.pin},
                {"warmup", o.warmup},
                {"rounds", o.rounds},
                {"model", model_json(o)},
                {"optimizer", optimizer_names[static_cast<std::size_t>(o.optimizer)]},
                {"microbatches", o.microbatches},
                {"prefetch", o.prefetch},
                {"busy_work_us", o.busy_seconds() * 1e6},
                {"links", links != nullptr ? to_json(*links) : json(nullptr)},
                {"wrong", std::move(wrong)},
                {"rows", array_of(rows)}};
    report["predicted"] = predicted.empty() ? json(nullptr)
                                            : json{{"assumptions", assumptions},
                                                   {"ranks_per_node", o.links.ranks_per_node},
                                                   {"rows", array_of(predicted)}};
    return json_text(report) + "\n";
}

}  // namespace benchmarks::policies
