// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/counts.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit {

namespace detail {

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

}  // namespace detail

/// Returns a table of a model's parameters: name, shape, elements of the whole tensor, and the bytes that this rank
/// holds of it between steps, master weights included. A line for each parameter, and one for the sum.
/// Order:   local work
/// @throws  UsageError when a group has ended since the model was made
inline std::string model_summary(const Model& model, SourceLocation where = SourceLocation::current()) {
    return detail::model_summary(model, std::vector<ShardInfo>(), where);
}
/// The same with the states of the model's optimizer among the bytes.
inline std::string model_summary(const Model& model, Optimizer& optimizer,
                                 SourceLocation where = SourceLocation::current()) {
    return detail::model_summary(model, optimizer.shards(), where);
}

/// Returns the descriptions of a model's groups with the states that an optimizer, or the parts of one, keep of each:
/// none of a group that it does not update. They refer to the groups' paths.
inline std::vector<planner::GroupDescription> describe_groups(const Model& model, Optimizer& optimizer,
                                                              SourceLocation where = SourceLocation::current()) {
    std::map<std::uint64_t, OptimizerStates> held;
    detail::Access::for_each_state(
        optimizer,
        [&](const auto& group, const detail::HeldMemory& each) {
            if (each.unit > 1) { return; }  // scales, which belong to the codes before them
            const ElementType type = each.values.type();
            held.emplace(group.identity(), OptimizerStates(0)).first->second +=
                OptimizerStates(1, type == ElementType::bf16    ? StateFormat::bf16
                                   : type == ElementType::uint8 ? StateFormat::block8
                                                                : StateFormat::full);
        },
        where);
    std::vector<planner::GroupDescription> groups = describe_groups(model, where);
    std::size_t number = 0;
    for (detail::Group& group : detail::Access::each(model, where)) {
        const auto found = held.find(group.identity());
        groups[number++].optimizer_states = found == held.end() ? OptimizerStates(0) : found->second;
    }
    return groups;
}

/// Returns the plan of a model and its optimizer, whose states it counts; PlanOptions::optimizer_states says nothing
/// then. What an optimizer of whole matrices holds beside its states is MatrixOptimizer::bytes_of_exchange.
inline Plan plan(const Model& model, Optimizer& optimizer, planner::PlanOptions options = {},
                 SourceLocation where = SourceLocation::current()) {
    return detail::plan_groups(describe_groups(model, optimizer, where), model, options, where);
}

}  // namespace shardkit
