// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/ranks_per_host.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>

// Defines the functions of plan_model.hpp.

namespace shardkit::detail {

/// Appends `text` and spaces up to `width` columns, before it for numbers.
inline void append_column(std::string& line, std::string_view text, std::size_t width, bool right) {
    const std::string spaces(width - std::min(width, text.size()), ' ');
    line += right ? concat(spaces, text, "  ") : concat(text, spaces, "  ");
}

/// Writes a model's parameters as lines of a table; `states`: what this rank holds of each besides.
inline std::string model_summary(const Model& model, const std::vector<ShardInfo>& states, SourceLocation where) {
    std::map<std::pair<std::string, std::string>, std::uint64_t> bytes;
    const auto count = [&](const std::vector<ShardInfo>& held) {
        for (const ShardInfo& info : held) {
            bytes[{info.path, info.parameter}] += info.local.size() * size_of(info.type);
        }
    };
    count(states);
    model.for_each([&](const auto& group) { count(group.shards()); }, where);
    std::vector<std::vector<std::string>> rows{{"parameter", "shape", "elements", "bytes on this rank", ""}};
    std::uint64_t elements = 0;
    std::uint64_t total = 0;
    model.for_each(
        [&](const auto& group) {
            for (const PlacedParameter& parameter : group.parameters()) {
                const auto own = bytes.find({group.path(), std::string(parameter.name)});
                const std::uint64_t here = own == bytes.end() ? 0 : own->second;
                elements += parameter.shape.numel();
                total += here;
                rows.push_back({concat(group.path(), ".", parameter.name), parameter.shape.describe(),
                                concat(parameter.shape.numel()), human_bytes(ByteCount(here)),
                                concat(parameter.frozen ? "frozen" : "",
                                       parameter.frozen && parameter.split_over_tp() ? ", " : "",
                                       parameter.split_over_tp() ? "split over tp" : "")});
            }
        },
        where);
    rows.push_back({"total", "", concat(elements), human_bytes(ByteCount(total)), ""});
    std::string text;
    for (const auto& row : rows) {
        for (std::size_t column = 0; column < row.size(); ++column) {
            std::size_t width = 0;
            for (const auto& each : rows) { width = std::max(width, each[column].size()); }
            append_column(text, row[column], width, column == 2 || column == 3);
        }
        text.resize(text.find_last_not_of(' ') + 1);
        text += '\n';
    }
    return text;
}

/// The plan of described groups that exist on this engine.
inline Plan plan_groups(const std::vector<planner::GroupDescription>& groups, const Model& model,
                        planner::PlanOptions options, SourceLocation where) {
    if (groups.empty()) { return {}; }
    const Rank& rank = detail::rank_of(model, where);
    options.engine = rank.world().traits();
    if (options.ranks_per_host == 0) { options.ranks_per_host = shardkit::ranks_per_host(rank.world()); }
    return plan(std::span<const planner::GroupDescription>(groups.data(), groups.size()), rank.grid(), options);
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {
SHARDKIT_CORE_INLINE planner::GroupDescription description_of(const Group& group) {
    return group.geometry().description();
}
}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE std::vector<planner::GroupDescription> describe_groups(const Model& model,
                                                                            SourceLocation where) {
    std::vector<planner::GroupDescription> groups;
    for (detail::Group& group : spi::groups(model, where)) { groups.push_back(group.geometry().description()); }
    return groups;
}
SHARDKIT_CORE_INLINE std::vector<planner::GroupDescription> describe_groups(const Model& model, Optimizer& optimizer,
                                                                            SourceLocation where) {
    std::map<std::uint64_t, OptimizerStates> held;
    spi::OptimizerContents(optimizer, where).for_each_state([&](const auto& group, const detail::HeldMemory& each) {
        if (each.unit > 1) { return; }  // scales, which belong to the codes before them
        const ElementType type = each.values.type();
        held.emplace(group.identity(), OptimizerStates(0)).first->second +=
            OptimizerStates(1, type == ElementType::bf16    ? StateFormat::bf16
                               : type == ElementType::uint8 ? StateFormat::block8
                                                            : StateFormat::full);
    });
    std::vector<planner::GroupDescription> groups = describe_groups(model, where);
    std::size_t number = 0;
    for (detail::Group& group : spi::groups(model, where)) {
        const auto found = held.find(group.identity());
        groups[number++].optimizer_states = found == held.end() ? OptimizerStates(0) : found->second;
    }
    return groups;
}

SHARDKIT_CORE_INLINE Plan plan(const Model& model, const planner::PlanOptions& options, SourceLocation where) {
    return detail::plan_groups(describe_groups(model, where), model, options, where);
}
SHARDKIT_CORE_INLINE Plan plan(const Model& model, Optimizer& optimizer, const planner::PlanOptions& options,
                               SourceLocation where) {
    return detail::plan_groups(describe_groups(model, optimizer, where), model, options, where);
}

SHARDKIT_CORE_INLINE std::string model_summary(const Model& model, SourceLocation where) {
    return detail::model_summary(model, std::vector<ShardInfo>(), where);
}
SHARDKIT_CORE_INLINE std::string model_summary(const Model& model, Optimizer& optimizer, SourceLocation where) {
    return detail::model_summary(model, optimizer.shards(), where);
}

}  // namespace shardkit SHARDKIT_FACE
