// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/optim/offload_plan.hpp>
#include <shardkit/plan/step_counts.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::planner {

/// The peak bytes of the library's buffers on one rank, by kind. They are equal on all ranks.
struct MemoryPlan {
    ByteCount parameters;        ///< at rest: the full buffers or the shards, and second shards
    ByteCount master;            ///< master weights, where the master type differs
    ByteCount gradients;         ///< at rest: full gradients that microbatches add to, and reduced gradients
    ByteCount optimizer;         ///< optimizer states
    ByteCount gather_buffers;    ///< full parameters while windows are open
    ByteCount gradient_buffers;  ///< full gradients while a microbatch is open, and all that are released
    ByteCount reduce_buffers;    ///< addends of later microbatches, and the norm's sum and totals
    ByteCount arena;             ///< of a schedule: memory shared by all buffers of the last three kinds
    ByteCount offload_slots;     ///< through which offloaded states pass
    ByteCount staging;           ///< in which the engine's verbs collect addends: engine::Traits::staging_bytes
    ByteCount engine;            ///< what it takes of its own, and what buffers are rounded up by
    ByteCount communicators;     ///< an estimate of what the engine's library takes, which `total` does not count
    ByteCount host;              ///< states, masters and slots in pinned host memory, which `total` does not count

    constexpr ByteCount total() const noexcept {
        return parameters + master + gradients + optimizer + gather_buffers + gradient_buffers + reduce_buffers +
               arena + offload_slots + staging + engine;
    }
    friend constexpr bool operator==(const MemoryPlan&, const MemoryPlan&) noexcept = default;
};

}  // namespace shardkit::planner

namespace shardkit::detail {

/// Returns the kind under which a plan counts a buffer that the group owns or, if `leased`, shares.
constexpr auto kind_of(Role role, Held held) -> ByteCount planner::MemoryPlan::* {
    using Plan = planner::MemoryPlan;
    return role == Role::parameters || role == Role::secondary ? &Plan::parameters
           : role == Role::gathered                            ? &Plan::gather_buffers
           : role == Role::master                              ? &Plan::master
           : role == Role::states                              ? &Plan::optimizer
           : role == Role::addend                              ? &Plan::reduce_buffers
           : held == Held::leased                              ? &Plan::gradient_buffers
                                                               : &Plan::gradients;
}
/// Counts a buffer of that kind.
constexpr void add_buffer(planner::MemoryPlan& plan, ByteCount planner::MemoryPlan::*kind, std::size_t bytes,
                          const engine::Traits& engine, std::size_t count = 1) {
    plan.*kind += ByteCount(count * bytes);
    plan.engine += ByteCount(count * (engine.buffer_bytes(bytes) - bytes));
}
/// Counts the buffers of a row likewise; of scales there is one of its own.
constexpr void add_row(planner::MemoryPlan& plan, ByteCount planner::MemoryPlan::*kind, const BufferRow& row,
                       const GroupDescription& group, const engine::Traits& engine) {
    const std::size_t of_elements = element_bytes_of(row, group);
    add_buffer(plan, kind, of_elements, engine);
    add_buffer(plan, kind, bytes_of(row, group) - of_elements, engine);
}
/// Returns the bytes that the group needs from the pool of `role`, 0 if it uses none.
constexpr std::size_t slot_bytes(Role role, const GroupDescription& group) {
    const GroupRows rows(group);
    return role == Role::gathered    ? rows.full_bytes
           : role == Role::gradients ? rows.gradient_bytes
           : role == Role::reduced   ? rows.reduced_bytes
                                     : rows.addend_bytes;
}
/// Returns whether `group`, behind `earlier`, adds a slot of `bytes` to the pool of `role`, which groups with equal
/// shapes share.
constexpr bool adds_slot(std::span<const GroupDescription> earlier, const GroupDescription& group, Role role,
                         std::size_t bytes, std::size_t in_flight) {
    std::size_t same = 0;
    for (std::size_t i = 0; i < earlier.size() && same < in_flight; ++i) {
        same += earlier[i].alike == group.alike && slot_bytes(role, earlier[i]) == bytes ? 1U : 0U;
    }
    return pool_slots(same + 1, in_flight) > pool_slots(same, in_flight);
}

/// Returns the memory that the groups, an optimizer and the norm hold from construction on: all except the shared
/// slots.
constexpr planner::MemoryPlan resting_memory(std::span<const GroupDescription> groups,
                                             const planner::PlanOptions& options) {
    planner::MemoryPlan plan;
    const engine::Traits& engine = options.engine;
    std::size_t staged = engine.reduction_staging;
    for (const GroupDescription& group : groups) {
        staged = std::max(staged, std::min(staged_bytes(group, engine), engine.most_reduction_staging));
    }
    plan.engine = ByteCount(engine.own_bytes);
    add_buffer(plan, &planner::MemoryPlan::staging, engine.staging_bytes - engine.reduction_staging, engine);
    add_buffer(plan, &planner::MemoryPlan::staging, staged, engine);
    const engine::Traits of_host{};
    bool slots_on_device = false, updates_on_host = false;
    for (const GroupDescription& group : groups) {
        const OptimizerStates& states = states_of(group, options);
        for (const GroupRows rows(group); const BufferRow& row : rows.buffers()) {
            if (row.held == Held::leased) { continue; }
            const bool on_host = group.offloads() && (row.role == Role::states || row.role == Role::master);
            const auto kind = on_host ? &planner::MemoryPlan::host : kind_of(row.role, row.held);
            const engine::Traits& its = on_host ? of_host : engine;
            if (row.role != Role::states) {
                add_row(plan, kind, row, group, its);
                continue;
            }
            for (std::size_t format = 0; format < states.counts.size(); ++format) {
                const auto stored_as = static_cast<StateFormat>(format);
                const std::size_t numel = group.numel_of(row.extent), scales = scale_bytes(stored_as, numel);
                add_buffer(plan, kind, state_bytes(stored_as, numel, group.sizes.state) - scales, its,
                           states.counts[format]);
                add_buffer(plan, kind, scales, its, states.counts[format]);
            }
        }
        if (offload_piece(group, states, options.offload_slot_bytes) == 0) { continue; }
        slots_on_device = slots_on_device || group.offload == Offload::states;
        updates_on_host = updates_on_host || group.offload == Offload::update;
    }
    if (slots_on_device) {
        add_buffer(plan, &planner::MemoryPlan::offload_slots, 2 * options.offload_slot_bytes, engine);
    }
    if (updates_on_host) { plan.host += ByteCount(2 * options.offload_slot_bytes); }
    if (options.norms_per_step > 0) {
        for (const std::size_t numbers : {NormNumbers::scratch, NormNumbers::totals}) {
            add_buffer(plan, &planner::MemoryPlan::reduce_buffers, numbers * sizeof(double), engine);
        }
    }
    return plan;
}

}  // namespace shardkit::detail

namespace shardkit::planner {

/// Returns the peak bytes per rank for these groups.
/// @post equals what the containers, an optimizer with that many states and global_norm allocate in buffers
constexpr MemoryPlan plan_memory(std::span<const GroupDescription> groups, const PlanOptions& options = {}) {
    MemoryPlan plan = detail::resting_memory(groups, options);
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const detail::GroupRows rows(groups[i]);
        const bool takes_addend = detail::plain_step(rows, options.microbatches, 1).takes_addend;
        for (const detail::BufferRow& row : rows.buffers()) {
            if (row.held != detail::Held::leased) { continue; }
            if (row.role == detail::Role::addend && !takes_addend) { continue; }
            const std::size_t bytes = detail::bytes_of(row, groups[i]);
            if (detail::adds_slot(groups.first(i), groups[i], row.role, bytes, options.in_flight)) {
                detail::add_row(plan, detail::kind_of(row.role, row.held), row, groups[i], options.engine);
            }
        }
    }
    return plan;
}

}  // namespace shardkit::planner

namespace shardkit {

/// Returns the memory of one rank as a text table, with one line for each kind.
inline std::string memory_table(const planner::MemoryPlan& plan) {
    struct Row {
        std::string_view kind;
        ByteCount bytes;
        bool optional = false;
    };
    const Row rows[] = {{"parameters", plan.parameters},
                        {"master", plan.master},
                        {"gradients", plan.gradients},
                        {"optimizer", plan.optimizer},
                        {"gather buffers", plan.gather_buffers},
                        {"gradient buffers", plan.gradient_buffers},
                        {"reduce buffers", plan.reduce_buffers},
                        {"arena", plan.arena, true},
                        {"offload slots", plan.offload_slots, true},
                        {"staging", plan.staging, true},
                        {"engine", plan.engine, true},
                        {"total", plan.total()},
                        {"comms (estimate)", plan.communicators, true},
                        {"host", plan.host, true}};
    std::string table;
    for (const auto& [kind, bytes, optional] : rows) {
        if (optional && bytes.value == 0) { continue; }  // no schedule, nothing offloaded or staged
        std::array<char, 80> line{};
        std::snprintf(line.data(), line.size(), "  %-18.*s %14s\n", static_cast<int>(kind.size()), kind.data(),
                      detail::human_bytes(bytes).c_str());
        table += line.data();
    }
    return table;
}

}  // namespace shardkit
