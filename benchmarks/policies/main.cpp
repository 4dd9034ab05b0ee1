// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../examples/common/processes.hpp"
#include "../../examples/common/run_together.hpp"
#include "../common/machine.hpp"
#include "../common/result_files.hpp"
#include "elements.hpp"
#include "job.hpp"
#include "links.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::policies;

/// What has to be there before anything is measured.
struct Prepared {
    policies::Options options;
    std::optional<Links> links;        // none: to be fitted to this run
    std::optional<ResultFiles> files;  // of the process that reports
};

/// @throws InputError for a model whose counts overflow, or one that is too large to be trained here: all policies of
/// a mesh are there at once, and of the engines that have their ranks in this process all ranks
void require_plans(const policies::Options& o) {
    try {
        for (const program::MeshExtents& mesh : o.predict.empty() ? o.meshes : o.predict) {
            double bytes = 0;
            for (const program::PolicyKind policy : o.policies) {
                bytes += static_cast<double>(plan_model(o, mesh, policy).memory.total().value);
            }
            const std::size_t here = o.schedules.size() * (o.engine == EngineKind::mpi ? 1 : mesh.world());
            if (o.predict.empty()) { require_memory(bytes * static_cast<double>(here), "model or mesh"); }
        }
    } catch (const std::length_error& error) {
        throw program::InputError(std::string("the model cannot be planned: ") + error.what());
    }
}

std::optional<Prepared> prepare(int count, char** arguments, const program::Processes& processes) {
    std::string help;
    const auto options =
        policies::parse_command_line(count, arguments, help, processes.count(), processes.spare_processor());
    if (!options) {
        if (processes.reports()) { print(help); }
        return std::nullopt;
    }
    Prepared prepared{*options, {}, {}};
    const LinkOptions& links = options->links;
    if (links.within) { prepared.links = Links::given(*links.within, *links.across); }
    if (!links.fit.empty()) { prepared.links = Links::of(fit_files(links.fit, links.fit_engine)); }
    if (!prepared.links && !options->predict.empty() && options->meshes[0].world() < 2) {
        throw program::InputError(
            "--predict: one rank has no links to fit: expected --fit, --link-gbs, or more ranks");
    }
    require_plans(*options);
    if (processes.reports()) { prepared.files.emplace(options->json, options->plot); }
    return prepared;
}

/// As given, or fitted to the first mesh with more than one rank; none where every mesh has one.
std::optional<Links> links_of(const Prepared& prepared) {
    if (prepared.links) { return prepared.links; }
    const policies::Options& o = prepared.options;
    for (const program::MeshExtents& mesh : o.meshes) {
        if (mesh.world() < 2) { continue; }
        return Links::of(o.engine == EngineKind::mpi ? fit_mpi(o, mesh) : fit_threads(o, mesh));
    }
    return std::nullopt;
}

std::vector<policies::Row> measure_and_print(const policies::Options& o, const std::optional<Links>& links,
                                             bool reports) {
    std::vector<policies::Row> rows;
    const BusyWork busy = BusyWork::calibrate();
    for (const program::MeshExtents& mesh : o.meshes) {
        std::vector<policies::Row> of_mesh;
        const Job job{o, mesh, busy, links ? &links->within : nullptr};
        const policies::RowSink sink = [&](const policies::Row& row) { of_mesh.push_back(row); };
        with_element(o.element, [&]<class T>(std::type_identity<T>) {
            o.engine == EngineKind::mpi ? policies::run_on_mpi<T>(job, sink) : run_in_process<T>(job, sink);
        });
        if (reports) { print(mesh_table(of_mesh)); }
        rows.insert(rows.end(), of_mesh.begin(), of_mesh.end());
    }
    return rows;
}

void measure_and_report(const Prepared& prepared, const program::Processes& processes) {
    const policies::Options& o = prepared.options;
    const Machine machine = read_machine();
    const std::string mpi = processes.mpi_version();
    const bool reports = processes.reports();
    if (reports) { print(policies::table_head(o, machine, mpi)); }
    const std::optional<Links> links = links_of(prepared);
    if (reports && links) { print(links_head(*links)); }
    const Links* const used = links ? &*links : nullptr;
    if (!o.predict.empty()) {
        if (!reports) { return; }
        const std::vector<PredictedRow> rows = predict(o, *links);
        print(prediction_table(o, rows));
        prepared.files->write(policies::json_report(o, machine, mpi, used, {}, rows));
        return;
    }
    const std::vector<policies::Row> rows = measure_and_print(o, links, reports);
    if (!reports) { return; }
    prepared.files->write(policies::json_report(o, machine, mpi, used, rows, {}));
    std::string wrong;
    for (const policies::Row& row : rows) {
        for (const std::string& text : row.wrong()) { wrong.append(wrong.empty() ? "" : "; ").append(text); }
    }
    if (!wrong.empty()) { throw std::runtime_error("wrong data: " + wrong); }
}

}  // namespace

int main(int count, char** arguments) {
    return program::run_together(
        "policies", count, arguments,
        [&](const program::Processes& processes) { return prepare(count, arguments, processes); },
        measure_and_report);
}
