// SPDX-License-Identifier: Apache-2.0
#include "links.hpp"

#include <array>
#include <cmath>
#include <fstream>
#include <span>
#include <stdexcept>
#include <vector>

#include <nlohmann/json.hpp>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/plan/time_model.hpp>

#include "../../examples/common/input_error.hpp"
#include "../common/pin.hpp"
#include "elements.hpp"
#include "fit_here.hpp"
#include "job.hpp"

namespace benchmarks::policies {

FittedLink fit_link(std::span<const LinkSample> samples) {
    // Minimises the sum of (a u + b v - 1)^2 with u = messages / seconds, v = bytes / seconds.
    double uu = 0;
    double uv = 0;
    double vv = 0;
    double u1 = 0;
    double v1 = 0;
    bool sizes_differ = false;
    for (const LinkSample& s : samples) {
        if (!(s.seconds > 0)) { throw std::invalid_argument("fit_link: a sample took no time"); }
        sizes_differ = sizes_differ || s.bytes != samples[0].bytes;
        const double u = s.messages / s.seconds;
        const double v = s.bytes / s.seconds;
        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    if (!sizes_differ) { throw std::invalid_argument("fit_link: expected samples of at least two sizes"); }
    const double determinant = uu * vv - uv * uv;
    double latency = (u1 * vv - v1 * uv) / determinant;
    double per_byte = (v1 * uu - u1 * uv) / determinant;
    if (!(latency >= 0)) {
        latency = 0;
        per_byte = v1 / vv;
    } else if (!(per_byte >= 0)) {
        latency = u1 / uu;
        per_byte = 0;
    }
    FittedLink fitted{{latency, 1 / per_byte}, samples.size(), 0};
    for (const LinkSample& s : samples) {
        fitted.error += std::abs(fitted.link.seconds(s.messages, s.bytes) / s.seconds - 1);
    }
    fitted.error /= static_cast<double>(samples.size());
    return fitted;
}

namespace {

using nlohmann::json;
using Samples = std::array<std::vector<LinkSample>, step_verbs.size()>;

/// The figure out of place, or in place where there is no other.
void add_row(const json& row, std::size_t ranks, Samples& samples) {
    const auto verb = row.at("verb").get<std::string>();
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        if (verb != shardkit::name(step_verbs[i])) { continue; }
        const json& figure = row.at("out_of_place").is_null() ? row.at("in_place") : row.at("out_of_place");
        samples[i].push_back({shardkit::detail::ring_messages(step_verbs[i], ranks),
                              row.at("size").get<double>() * row.at("bus_factor").get<double>(),
                              figure.at("time_us").at("median").get<double>() * 1e-6});
    }
}

/// Where the samples of a file come from.
struct Source {
    std::string engine;
    std::size_t ranks = 0;
    std::size_t processors = 0;
};

Source read(const std::string& file, Samples& samples) {
    std::ifstream stream(file);
    if (!stream) { throw program::bad_flag("--fit", file, "a file that can be read"); }
    try {
        const json report = json::parse(stream);
        if (report.at("benchmark") != "collectives" || report.at("format") != 1) {
            throw std::invalid_argument("another benchmark or format");
        }
        const auto ranks = report.at("group_size").get<std::size_t>();
        if (ranks < 2) { throw std::invalid_argument("one rank"); }
        for (const json& row : report.at("rows")) { add_row(row, ranks, samples); }
        return {report.at("engine").get<std::string>(), report.at("ranks").get<std::size_t>(),
                report.at("machine").at("processors").get<std::size_t>()};
    } catch (const std::exception& error) {
        throw program::bad_flag(
            "--fit", file, std::string("what collectives --json writes for at least 2 ranks (") + error.what() + ")");
    }
}

}  // namespace

FittedLinks fit_files(const std::vector<std::string>& files, std::optional<EngineKind> engine) {
    Samples samples;
    FittedLinks fitted;
    std::string all;
    std::string shared;
    std::string wanted;
    if (engine) { wanted = engine_names[static_cast<std::size_t>(*engine)]; }
    for (const std::string& file : files) {
        const Source source = read(file, samples);
        if (wanted.empty()) { wanted = source.engine; }
        if (source.engine != wanted) {
            throw program::bad_flag("--fit", file,
                                    "a file measured with engine " + wanted + ", not with " + source.engine);
        }
        if (source.ranks > source.processors) {
            shared += "; " + file + ": " + std::to_string(source.ranks) + " ranks shared " +
                      std::to_string(source.processors) + (source.processors == 1 ? " processor" : " processors") +
                      ", which takes longer than with one for each";
        }
        all += (all.empty() ? "" : ",") + file;
    }
    fitted.source = "fitted to " + all + " of engine " + wanted + shared;
    for (std::size_t i = 0; i < step_verbs.size(); ++i) {
        try {
            fitted.verbs[i] = fit_link(samples[i]);
        } catch (const std::invalid_argument&) {
            throw program::bad_flag("--fit", all,
                                    "at least two sizes of " + std::string(shardkit::name(step_verbs[i])));
        }
    }
    return fitted;
}

namespace {

shardkit::AxisGrid grid_of(const program::MeshExtents& mesh) {
    return shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp).grid();
}

}  // namespace

shardkit::rules::PolicyValues traits_of(const Options& options, const program::MeshExtents& mesh,
                                        program::PolicyKind policy) {
    return shardkit::rules::policy_values(options.policy_on(mesh, policy), mesh.dp);
}

std::string across_groups(const shardkit::rules::PolicyValues& policy, const shardkit::AxisGrid& mesh) {
    const shardkit::detail::GroupMesh ranks(mesh, policy, false, "a group", {});
    const shardkit::AxisNames across = ranks.axes(shardkit::detail::Over::replicas);
    return shardkit::planner::PlannedAxes::of_split(ranks.grid(), across, policy).label();
}

shardkit::Plan plan_model(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy) {
    const shardkit::AxisGrid grid = grid_of(mesh);
    const shardkit::DynamicPolicy chosen = options.policy_on(mesh, policy);
    const auto described = with_element(options.element, [&]<class T>(std::type_identity<T>) {
        std::vector<shardkit::planner::GroupDescription> groups;
        for (const GroupSize& group : options.groups) {
            const shardkit::Shapes<Elements<T>> shapes{shardkit::shape<Elements<T>>(group.numel)};
            groups.push_back(shardkit::describe_group<Elements<T>>(group.path, shapes, grid, chosen));
        }
        return groups;
    });
    return shardkit::plan(std::span<const shardkit::planner::GroupDescription>(described), grid,
                          {.microbatches = options.microbatches,
                           .in_flight = options.in_flight(),
                           .optimizer_states = options.optimizer_states()});
}

Links Links::given(const shardkit::planner::LinkModel& within, const shardkit::planner::LinkModel& across) {
    return {shardkit::planner::TimeModel::links(within), shardkit::planner::TimeModel::links(across), std::nullopt,
            "given by flags"};
}

Links Links::of(const FittedLinks& fitted) { return {fitted.links(), fitted.links(), fitted, fitted.source}; }

std::vector<PredictedRow> predict(const Options& o, const Links& links) {
    const shardkit::planner::TimeModel model{links.within, links.across, o.links.ranks_per_node};
    std::vector<PredictedRow> rows;
    for (const program::MeshExtents& mesh : o.predict) {
        const shardkit::AxisGrid grid = shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp).grid();
        for (const program::PolicyKind policy : o.policies) {
            const shardkit::Plan plan = plan_model(o, mesh, policy);
            const shardkit::rules::PolicyValues traits = traits_of(o, mesh, policy);
            PredictedRow row;
            row.mesh = mesh;
            row.nodes = (mesh.world() + o.links.ranks_per_node - 1) / o.links.ranks_per_node;
            row.policy = policy;
            row.shard_group = policy == program::PolicyKind::no_shard ? 1 : traits.shard_group;
            row.memory = plan.memory.total().value;
            for (const shardkit::Verb verb : step_verbs) {
                row.calls += static_cast<double>(plan.traffic.total(verb).calls);
                row.bytes += static_cast<double>(plan.traffic.total(verb).moved.value);
            }
            row.compute = o.busy_seconds();
            row.communication = shardkit::planner::communication_seconds(plan.traffic, grid, model);
            rows.push_back(row);
        }
    }
    return rows;
}

FittedLinks fit_threads(const Options& options, const program::MeshExtents& mesh) {
    FittedLinks fitted;
    shardkit::threads::run(shardkit::DeviceMesh(mesh.dp, mesh.tp, mesh.cp), [&](auto& rank) {
        if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
        const FittedLinks found = fit_here(rank);
        if (rank.rank() == 0) { fitted = found; }
    });
    return fitted;
}

}  // namespace benchmarks::policies
