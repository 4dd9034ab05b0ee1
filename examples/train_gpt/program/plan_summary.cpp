// SPDX-License-Identifier: Apache-2.0
#include "plan_summary.hpp"

#include <array>
#include <span>
#include <sstream>
#include <stdexcept>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/plan/plan_table.hpp>

#include "../model/parameters.hpp"
#include "input_error.hpp"
#include "mpi_job.hpp"
#include "policies.hpp"
#include "text_format.hpp"
#include "workspace.hpp"

namespace train_gpt {

namespace {

sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic> mesh_of(const Options& options) {
    return sk::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp);
}

/// A group and how often a microbatch opens a window on it.
struct PlannedGroup {
    sk::GroupDescription description;
    std::size_t windows;
};

template <class T, class Policy>
std::vector<PlannedGroup> planned_groups(const Options& options, const Policy& policy) {
    const ModelConfig& config = options.model;
    const auto grid = mesh_of(options).grid();
    const bool tied = config.head == HeadKind::tied;
    const auto embedding =
        sk::describe_group<EmbeddingGroup<T>>("embedding", embedding_shapes<T>(config), grid, policy);
    const auto block = sk::describe_group<BlockGroup<T>>("blocks", block_shapes<T>(config), grid, policy);
    const auto head = sk::describe_group<HeadGroup<T>>("head", head_shapes<T>(config), grid, policy);
    const auto logits = sk::describe_group<LogitsGroup<T>>("logits", logits_shapes<T>(config), grid, policy);
    // The embedding's own backward pass reads no weights, and the head's two passes share a window.
    std::vector<PlannedGroup> groups{{embedding, tied ? 2U : 1U}};
    groups.insert(groups.end(), config.layers, {block, 2});
    groups.push_back({head, 1});
    if (!tied) { groups.push_back({logits, 1}); }
    return groups;
}

void add(sk::TrafficPlan& sum, const sk::TrafficPlan& one, std::size_t times) {
    for (const sk::Verb verb : sk::TrafficPlan::verbs) {
        for (const sk::TrafficAxes axes : sk::TrafficPlan::all_axes) {
            const sk::PlannedTraffic& row = one(verb, axes);
            if (row.calls > 0) {
                sum.add(verb, axes, times * row.calls, row.payload.value / row.calls, row.moved.value / row.calls);
            }
        }
    }
}

template <class T>
PlanSummary plan_for(const Options& options) {
    return with_policy(options, [&](const auto& policy) {
        const auto groups = planned_groups<T>(options, policy);
        const auto grid = mesh_of(options).grid();
        std::vector<sk::GroupDescription> descriptions;
        for (const auto& group : groups) { descriptions.push_back(group.description); }

        sk::PlanOptions each;
        each.microbatches = options.microbatches;
        each.optimizer_states = options.optimizer == OptimizerKind::adamw ? 2 : 1;
        if (options.engine == EngineKind::mpi) { each.engine = mpi_traits(); }
        PlanSummary summary;
        summary.library = sk::plan(descriptions, grid, each);
        const auto norm = summary.library.traffic(sk::Verb::all_reduce, sk::TrafficAxes::world);

        // Windows per microbatch differ between the groups, so each kind of group has a traffic plan of its own.
        sk::TrafficPlan traffic;
        each.norms_per_step = 0;
        for (std::size_t i = 0; i < groups.size();) {
            const bool block = i > 0 && i <= options.model.layers;
            const std::size_t times = block ? options.model.layers : 1;
            each.windows_per_microbatch = groups[i].windows;
            add(traffic, sk::plan_traffic({&groups[i].description, 1}, grid, each), times);
            i += times;
        }
        if (const std::size_t world = grid.size(); world > 1) {
            traffic.add(sk::Verb::all_reduce, sk::TrafficAxes::world, 1, norm.payload.value, norm.moved.value);
            // The loss: one double, summed over the world.
            constexpr std::size_t loss = sizeof(double);
            traffic.add(sk::Verb::all_reduce, sk::TrafficAxes::world, 1, loss,
                        sk::all_reduce_moved(loss, loss, world, each.engine));
        }
        summary.library.traffic = traffic;
        summary.workspace_bytes = Workspace<T>::bytes(options.model, options.pass_shape());
        return summary;
    });
}

}  // namespace

std::vector<CollectiveCount> PlanSummary::collectives() const {
    std::vector<CollectiveCount> counts;
    for (const sk::Verb verb : sk::TrafficPlan::verbs) {
        const auto total = library.traffic.total(verb);
        if (total.calls > 0) {
            counts.push_back({std::string(name(verb)), total.calls, total.moved.value, total.payload.value});
        }
    }
    return counts;
}

PlanSummary make_plan(const Options& options) {
    try {
        switch (options.dtype) {
            case Dtype::fp64:
                return plan_for<double>(options);
            case Dtype::fp32:
                return plan_for<float>(options);
            case Dtype::bf16:
                return plan_for<sk::bf16>(options);
        }
    } catch (const std::length_error& error) {
        throw InputError("--width " + std::to_string(options.model.width) + " and --layers " +
                         std::to_string(options.model.layers) + ": " + error.what());
    }
    throw std::logic_error("make_plan: unknown element type");
}

std::string describe_plan(const Options& options, const PlanSummary& plan) {
    const ModelConfig& m = options.model;
    std::ostringstream out;
    const auto name = [](const auto& names, auto value) { return names[static_cast<std::size_t>(value)]; };
    out << "model: " << grouped(plan.library.numel) << " parameters, " << m.layers << " blocks of width " << m.width
        << ", " << m.heads << " heads, " << name(head_names, m.head) << " head, sequence " << m.sequence << '\n'
        << "run:   mesh " << options.mesh.describe() << ", " << options.policy_text() << ", engine "
        << name(engine_names, options.engine) << ", " << name(dtype_names, options.dtype) << ", "
        << name(optimizer_names, options.optimizer) << ", " << grouped(options.tokens_per_step())
        << " tokens per step in " << options.microbatches << (options.microbatches == 1 ? " pass" : " passes")
        << " per rank\n"
        << "memory per rank, planned:\n";
    const auto& memory = plan.library.memory;
    const auto row = [&](const char* kind, std::uint64_t bytes) { out << table_row(kind, bytes_text(bytes)); };
    row("parameters", memory.parameters.value);
    row("master weights", memory.master.value);
    row("gradients", memory.gradients.value);
    row("optimizer", memory.optimizer.value);
    row("gather buffers", memory.gather_buffers.value);
    row("gradient buffers", memory.gradient_buffers.value);
    row("reduce buffers", memory.reduce_buffers.value);
    row("activations", plan.workspace_bytes);
    row("total", plan.bytes_per_rank());
    const std::size_t group =
        with_policy(options, [&](const auto& policy) { return std::size_t{policy.shard_group(options.mesh.dp)}; });
    out << "on the wire per rank and step, planned:\n"
        << sk::traffic_table(plan.library.traffic, mesh_of(options).grid(), group);
    return out.str();
}

}  // namespace train_gpt
