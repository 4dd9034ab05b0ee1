// SPDX-License-Identifier: Apache-2.0
#include "plan_summary.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/exact_sum.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/muon/matrix_plan.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/peak.hpp>
#include <shardkit/schedule/schedule_table.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>

#include "../../common/input_error.hpp"
#include "../../common/text_format.hpp"
#include "../model/parameters.hpp"
#include "choose_schedule.hpp"
#include "engine_links.hpp"
#include "expert_layers.hpp"
#include "workspace.hpp"

namespace train_gpt {

namespace {

auto mesh_of(const Options& options) {
    return sk::ExpertMesh(sk::DeviceMesh(options.mesh.dp, options.mesh.tp, options.mesh.cp), options.ep);
}

/// The model's groups, and the names that they refer to.
struct PlannedGroups {
    std::deque<std::string> paths;
    std::vector<sk::planner::GroupDescription> all;
};

template <class T>
PlannedGroups planned_groups(const Options& options) {
    const ModelConfig& config = options.model;
    const bool tied = config.head == HeadKind::tied;
    PlannedGroups groups;
    const auto add = [&]<class Group>(const std::string& path, const sk::Shapes<Group>& shapes, std::size_t windows) {
        auto group = sk::describe_group<Group, sk::DynamicPolicy, sk::DefaultPrecision<T>>(
            groups.paths.emplace_back(path), shapes, mesh_of(options).grid(), group_options<Group>(options));
        group.windows_per_microbatch = windows;
        if (options.optimizer == OptimizerKind::muon) {
            // AdamW's two in every group, and Muon's momentum where there are matrices.
            group.optimizer_states = group.path.starts_with("blocks") || group.experts ? 3 : 2;
        }
        groups.all.push_back(group);
    };
    // The embedding's own backward pass reads no weights, and the head's two passes share a window.
    add("embedding", embedding_shapes<T>(config), tied ? 2 : 1);
    const auto add_layers = [&](const char* of_layers, const auto& shapes) {
        for (std::size_t l = 0; l < config.layers; ++l) { add(of_layers + std::to_string(l), shapes, 2); }
    };
    add_layers("blocks.", block_shapes<T>(config));
    add("head", head_shapes<T>(config), 1);
    if (!tied) { add("logits", logits_shapes<T>(config), 1); }
    if (config.experts == 0) { return groups; }
    add_layers("routers.", router_shapes<T>(config));
    add_layers("experts.", expert_shapes<T>(config));
    return groups;
}

/// What a step communicates besides its groups: its passes over tp, cp and the ranks that share experts, and its
/// loss. `stored` is the size of an activation's number, `element` that of one in which sums are made.
void add_activations(sk::planner::TrafficPlan& plan, const Options& options, std::size_t stored, std::size_t element,
                     const sk::engine::Traits& engine) {
    using sk::Verb;
    const auto grid = mesh_of(options).grid();
    const std::size_t cp = options.mesh.cp;
    const auto over = [&](const sk::planner::PlannedAxes& axes) {
        return [&plan, &options, &engine, grid, axes](Verb verb, std::size_t calls, std::size_t bytes) {
            plan.add(verb, axes, calls, bytes, grid, engine, options.ranks_per_host);
        };
    };
    const auto over_tp = over(sk::planner::PlannedAxes::of(grid, sk::Axes<sk::Tp>{}));
    const auto over_cp = over(sk::planner::PlannedAxes::of(grid, sk::Axes<sk::Cp>{}));
    if (options.every == 1) {  // the loss, where it is read: one double, or the numbers of an exact sum
        over(sk::planner::PlannedAxes::of(grid, sk::Axes<sk::Dp, sk::Cp>{}))(
            Verb::all_reduce, 1, sizeof(double) * (options.slices > 0 ? sk::ExactSum::numbers : 1));
    }
    const ModelConfig& model = options.model;
    const std::size_t layers = model.layers;
    const Split split = options.split();
    const sk::planner::PlannedAxes over_ep{sk::Axes<sk::Ep>{}, options.mesh.dp, true};
    const auto sharing = over_ep.group(grid, 0);
    // Forward passes of blocks, made once more for all but the last one where activations are not kept.
    const std::size_t forward = model.recompute ? 2 * layers - 1 : layers;
    for (std::size_t m = 0; m < options.microbatches; ++m) {
        const std::size_t tokens = split.local({options.microbatch_sequences(m), model.sequence}).tokens();
        if (model.experts > 0 && options.ep > 1) {
            // There and back in both passes, as if each expert got as many tokens; and how many there are.
            const std::size_t rows = rows_of_experts(model, tokens) / options.ep;
            plan.add_uneven(
                over_ep, 4 * layers, options.ep,
                [&](std::size_t, std::size_t) { return rows * model.width * stored; },
                [&](std::size_t i) {
                    return options.ranks_per_host == 0 ? 0 : sharing.member(i) / options.ranks_per_host;
                });
            if (model.capacity == 0) {
                over(over_ep)(Verb::all_to_all, layers, sizeof(std::uint64_t) * model.experts);
            }
        }
        // Sums: two for each pass of a block, one behind the embedding and one at the head's backward pass. Gathers:
        // two for a block's forward pass and four for its backward pass, one each for embedding and head.
        const std::size_t sums = 2 * forward + 2 * layers + 2, wide = tokens * model.width * element;
        if (split.splits_tokens()) {
            over_tp(Verb::all_gather, 2 * forward + 4 * layers + 2, tokens * model.width * stored);
            over_tp(Verb::reduce_scatter, sums, wide);
        } else {
            over_tp(Verb::all_reduce, sums, wide);
        }
        if (model.experts > 0) {
            // What comes of the experts, and the gradients at what goes to them and of the choices' weights.
            over_tp(Verb::all_reduce, 2 * layers, wide);
            over_tp(Verb::all_reduce, layers, tokens * model.top * element);
        }
        // For the loss a token's largest logit; the sum of its exponentials and the target's logit.
        over_tp(Verb::all_reduce, 1, tokens * element);
        over_tp(Verb::all_reduce, 1, 2 * tokens * element);
        const std::size_t numbers = 2 * tokens * split.width(model);  // keys and values
        if (options.context == ContextExchange::ring) {
            for (const Verb verb : {Verb::send, Verb::receive}) {
                over_cp(verb, (forward + layers) * (cp - 1), numbers * stored);
                over_cp(verb, layers * cp, numbers * element);
            }
        } else {
            over_cp(Verb::all_gather, forward + layers, cp * numbers * stored);
            over_cp(Verb::reduce_scatter, layers, cp * numbers * element);
        }
    }
}

/// How tp and cp are used, where they are.
std::string split_text(const Options& options) {
    std::string text;
    if (options.mesh.tp > 1) {
        text += options.sequence_parallel == SequenceParallel::on ? ", sequence parallel" : ", not sequence parallel";
    }
    if (options.mesh.cp > 1) {
        text += options.context == ContextExchange::ring ? ", ring attention" : ", gathered keys and values";
    }
    return text;
}

/// A plan's rows as they are measured: those of experts are logged with others over axes of the same names.
Collectives collectives_of(const sk::planner::TrafficPlan& plan) {
    Collectives all;
    for (const sk::planner::PlannedRow& row : plan.rows()) {
        all[{row.axes.label(), std::string(name(row.verb))}] += row.traffic;
    }
    return all;
}

/// Refuses what needs more memory than --memory-limit.
void require_memory(const Options& options, std::uint64_t needed) {
    program::require(options.memory_limit == 0 || needed <= options.memory_limit, "--memory-limit ",
                     options.memory_limit, ": with --schedule ", options.schedule.text(),
                     " each rank needs at least ", needed, " bytes (", program::bytes_text(needed), ")");
}

/// What Muon adds to the plan: its matrices lie in the blocks.
template <class T>
sk::planner::MatrixPlan plan_matrices(const Options& options) {
    sk::planner::MatrixPlanner<sk::rules::MuonRule, Arithmetic<T>> planner{
        mesh_of(options).grid(), {}, options.ranks_per_host};
    for (std::size_t l = 0; l < options.model.layers; ++l) {
        planner.template add<BlockGroup<T>>(
            "blocks." + std::to_string(l), block_shapes<T>(options.model),
            sk::ShardedOptions<BlockGroup<T>, sk::DynamicPolicy>{options.chosen_policy()});
    }
    for (std::size_t l = 0; options.model.experts > 0 && l < options.model.layers; ++l) {
        planner.template add<ExpertGroup<T>>(
            "experts." + std::to_string(l), expert_shapes<T>(options.model),
            sk::ShardedOptions<ExpertGroup<T>, sk::DynamicPolicy>{options.chosen_policy()});
    }
    return planner.plan();
}

/// The step that the trainer makes, of planned_groups: the verbs of forward_backward, over groups without memory. A
/// trainer that made others would be refused when it follows this. `batches`: of whole matrices.
sk::Schedule step_of(const Options& options, std::span<const sk::planner::GroupDescription> groups,
                     std::size_t batches) {
    sk::schedule::DryStep step(groups, options.microbatches);
    const std::size_t layers = options.model.layers;
    const bool tied = options.model.head == HeadKind::tied, has_experts = options.model.experts > 0;
    const std::size_t embedding = 0, blocks = 1, head = blocks + layers, logits = tied ? embedding : head + 1;
    const std::size_t routers = head + (tied ? 1 : 2), experts = routers + layers;
    for (std::size_t m = 0; m < options.microbatches; ++m) {
        step.unshard(embedding).reshard(embedding);
        for (std::size_t l = 0; l < layers; ++l) {
            step.unshard(blocks + l).reshard(blocks + l);
            if (has_experts) {
                step.unshard(routers + l).unshard(experts + l).reshard(experts + l).reshard(routers + l);
            }
        }
        step.gradients(head).unshard(head).unshard(logits).gradients(logits).reshard(logits).reshard(head);
        if (!tied) { step.add(logits); }
        step.add(head);
        for (std::size_t l = layers; l-- > 0;) {
            if (has_experts) {
                step.unshard(routers + l).unshard(experts + l).gradients(routers + l).gradients(experts + l);
                step.reshard(experts + l).reshard(routers + l).add(experts + l).add(routers + l);
            }
            step.unshard(blocks + l).gradients(blocks + l).reshard(blocks + l).add(blocks + l);
        }
        if (!tied) { step.gradients(embedding); }
        step.add(embedding);
    }
    return step.reduce().global_norm().matrices(batches).step().schedule();
}

/// What --schedule makes of the step, into a summary of the step without a schedule.
void add_schedule(PlanSummary& summary, const Options& options, std::span<const sk::planner::GroupDescription> groups,
                  const sk::planner::PlanOptions& assumed, const sk::planner::MatrixPlan& matrices) {
    const bool none = options.schedule.kind == ScheduleChoice::Kind::none;
    if (none) { require_memory(options, summary.bytes_per_rank()); }
    if (none && options.schedule_out.empty()) { return; }
    const sk::Schedule step = step_of(options, groups, matrices.batches.size());
    const auto grid = mesh_of(options).grid();
    const sk::ByteCount least = sk::schedule::peak(step, groups, assumed.optimizer_states);
    // Peaks of schedules leave out what is the engine's.
    const sk::planner::MemoryPlan& planned = summary.library.memory;
    const std::uint64_t of_engine = (planned.staging + planned.engine).value;
    const std::uint64_t beside = summary.beside_bytes() + of_engine;
    if (!none) { require_memory(options, least.value + beside); }
    StepMemory memory{
        assumed.optimizer_states, sk::ByteCount(planned.total().value - of_engine), {}, options.memory_limit > 0};
    memory.most = memory.limited ? sk::ByteCount(options.memory_limit - beside) : std::max(least, memory.none);
    summary.chosen = choose_schedule(options, step, groups, grid, assumed.engine, memory, matrices);
    const auto& followed = summary.chosen.schedule;
    if (followed) { summary.library = sk::schedule::plan(*followed, groups, grid, assumed); }
    if (!options.schedule_out.empty()) {
        const sk::Schedule& chosen = followed ? *followed : step;
        summary.schedule_text = "--schedule " + options.schedule.text() + ":\n" + sk::schedule::table(chosen, groups);
    }
}

/// What a rank's model computes with, where a Place has it.
template <class T, class Place>
std::uint64_t workspace_bytes(const Options& options, const sk::engine::Traits& engine) {
    const Split split = options.split();
    const std::size_t tokens = split.local(options.pass_shape()).tokens();
    return engine.buffer_bytes(Workspace<T, Place>::bytes(options)) +
           engine.buffer_bytes(TokensAhead<Place>::bytes(options), true) +
           exchange_bytes<typename Place::template Storage<T>>(options, engine) +
           (options.model.experts > 0
                ? ExpertLayers<T, Place>::bytes(options.model, split, tokens, options.ep, engine)
                : 0);
}

template <class T>
PlanSummary plan_for(const Options& options, const sk::engine::Traits& engine, std::size_t products) {
    sk::planner::PlanOptions assumed;
    assumed.microbatches = options.microbatches;
    assumed.norms_per_step = options.release == sk::GradientRelease::at_update ? 0 : 1;
    assumed.optimizer_states = {options.optimizer == OptimizerKind::adamw ? 2U : 1U, options.states};
    assumed.ranks_per_host = options.ranks_per_host;
    assumed.engine = engine;
    const bool on_device = options.engine == EngineKind::nccl;
    const auto grid = mesh_of(options).grid();
    const PlannedGroups planned = planned_groups<T>(options);
    const std::span<const sk::planner::GroupDescription> groups = planned.all;
    PlanSummary summary;
    summary.workspace_bytes =
        engine.buffer_bytes(products, true) + (on_device ? workspace_bytes<T, DeviceLayout>(options, engine)
                                                         : workspace_bytes<T, HostLayout>(options, engine));
    if (options.slices > 0) {  // in which losses are added
        summary.workspace_bytes += engine.buffer_bytes(sk::ExactSum::numbers * sizeof(double));
    }
    summary.library = sk::plan(groups, grid, assumed);
    sk::planner::MatrixPlan matrices;
    if (options.optimizer == OptimizerKind::muon) { matrices = plan_matrices<T>(options); }
    summary.matrix_bytes = matrices.bytes().value;
    add_schedule(summary, options, groups, assumed, matrices);
    summary.library.traffic += matrices.traffic;
    add_activations(summary.library.traffic, options, on_device ? sizeof(T) : sizeof(Arithmetic<T>),
                    sizeof(Arithmetic<T>), assumed.engine);
    summary.collectives = collectives_of(summary.library.traffic);
    return summary;
}

}  // namespace

PlanSummary make_plan(const Options& options, const sk::engine::Traits& engine, std::size_t products) {
    try {
        return with_dtype(options.dtype,
                          [&](auto element) { return plan_for<decltype(element)>(options, engine, products); });
    } catch (const std::length_error& error) {
        throw program::InputError("--width ", options.model.width, " and --layers ", options.model.layers, ": ",
                                  error.what());
    }
}

namespace {

std::string schedule_line(const Options& options, const PlanSummary& plan) {
    const ChosenSchedule& chosen = plan.chosen;
    if (options.schedule.kind == ScheduleChoice::Kind::none) { return ""; }
    std::string text = "step:  ";
    if (!chosen.schedule) { return text + "without a schedule: " + chosen.why + '\n'; }
    text += "schedule " + chosen.follows;
    if (chosen.follows != options.schedule.text()) { text += " (" + chosen.why + ")"; }
    return text + program::formatted(", %zu operations, hash %016llx\n", chosen.schedule->size(),
                                     static_cast<unsigned long long>(sk::schedule::hash(*chosen.schedule)));
}

}  // namespace

std::string table_of(const Collectives& planned, const Collectives* measured) {
    Collectives all = planned;
    if (measured != nullptr) { all.insert(measured->begin(), measured->end()); }
    const bool hosts = std::any_of(planned.begin(), planned.end(),
                                   [](const auto& each) { return each.second.between_hosts.value > 0; });
    const auto columns = [](const Collectives& from, const Collectives::key_type& of) {
        const auto at = from.find(of);
        const Collectives::mapped_type found = at == from.end() ? Collectives::mapped_type{} : at->second;
        return program::formatted(" %6llu calls %14s", static_cast<unsigned long long>(found.calls),
                                  program::bytes_text(found.moved.value).c_str());
    };
    std::string text;
    for (const auto& [of, each] : all) {
        text += program::formatted("  %-15s %-20s", of.second.c_str(), of.first.c_str());
        if (measured != nullptr) { text += columns(*measured, of) + "  "; }
        text += columns(planned, of);
        if (hosts) {
            text += program::formatted(" %14s between hosts", program::bytes_text(each.between_hosts.value).c_str());
        }
        text += '\n';
    }
    return text.empty() ? "  (nothing: one rank)\n" : text;
}

std::string describe_plan(const Options& options, const PlanSummary& plan) {
    const ModelConfig& m = options.model;
    std::ostringstream out;
    const auto name = [](const auto& names, auto value) { return names[static_cast<std::size_t>(value)]; };
    out << "model: " << program::grouped(plan.library.numel) << " parameters, " << m.layers << " blocks of width "
        << m.width << ", " << m.heads << " heads, " << name(head_names, m.head) << " head, sequence " << m.sequence
        << '\n'
        << "run:   mesh " << options.mesh.describe() << ", " << options.policy.text() << ", engine "
        << name(engine_names, options.engine) << split_text(options) << ", " << name(dtype_names, options.dtype)
        << ", " << name(optimizer_names, options.optimizer)
        << (options.release == sk::GradientRelease::at_update ? ", gradients released" : "") << ", "
        << program::grouped(options.tokens_per_step()) << " tokens per step in "
        << (options.slices > 0 ? std::to_string(options.slices) + " slices, " : std::string()) << options.microbatches
        << (options.microbatches == 1 ? " pass" : " passes") << " per rank\n"
        << schedule_line(options, plan) << "memory per rank, planned:\n";
    const auto& memory = plan.library.memory;
    const auto row = [&](const char* kind, std::uint64_t bytes) {
        out << program::formatted("  %-18s %14s\n", kind, program::bytes_text(bytes).c_str());
    };
    row("parameters", memory.parameters.value);
    row("master weights", memory.master.value);
    row("gradients", memory.gradients.value);
    row("optimizer", memory.optimizer.value);
    if (plan.chosen.schedule) {
        row("schedule's arena", memory.arena.value);
    } else {
        row("gather buffers", memory.gather_buffers.value);
        row("gradient buffers", memory.gradient_buffers.value);
    }
    row("reduce buffers", memory.reduce_buffers.value);
    if (plan.matrix_bytes > 0) { row("matrices", plan.matrix_bytes); }
    if (const auto engine = memory.staging + memory.engine; engine.value > 0) { row("engine", engine.value); }
    row("activations", plan.workspace_bytes);
    row("total", plan.bytes_per_rank());
    out << "on the wire per rank and step, planned:\n";
    out << table_of(plan.collectives);
    return out.str();
}

}  // namespace train_gpt
