// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/detail/owned.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/muon/matrix_frame.hpp>
#include <shardkit/muon/matrix_launches.hpp>
#include <shardkit/muon/matrix_placement.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/spi/update_runner.hpp>
#include <shardkit/step/model.hpp>

// Defines the members of MatrixFrame.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns a ParamGroup's condition for what is a matrix, as `matrices` says.
inline auto are_matrices(const Model& model, const Matrices& matrices) {
    auto chosen = std::make_shared<std::set<std::pair<std::string, std::string>>>();
    for (const Group& group : spi::groups(model, SourceLocation{})) {
        for (const PlacedParameter& p : group.geometry().parameters) {
            if (is_matrix(matrices, group.path(), p)) { chosen->emplace(group.path(), p.name); }
        }
    }
    return [chosen](std::string_view path, std::string_view parameter) {
        return chosen->contains({std::string(path), std::string(parameter)});
    };
}
inline std::vector<ParamGroup> with_rest(const Model& model, const Matrices& matrices,
                                         std::vector<ParamGroup> param_groups, SourceLocation where) {
    for (const ParamGroup& group : param_groups) { validate(group, where); }
    require_matches(model, {param_groups.data(), param_groups.size()}, where);
    const auto is_matrix = are_matrices(model, matrices);
    bool all = true;
    for (const Group& group : spi::groups(model, where)) {
        for (const PlacedParameter& p : group.geometry().parameters) { all = all && is_matrix(group.path(), p.name); }
    }
    if (!all) {
        param_groups.insert(param_groups.begin(),
                            {.matches = [is_matrix](auto path, auto name) { return !is_matrix(path, name); },
                             .updated_by = UpdatedBy::another});
    }
    return param_groups;
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE MatrixFrame::MatrixFrame(const Model& model, const AnyOptions& options,
                                              const AnyMatrixRule& rule, const AnyProducts<Stream>& products,
                                              const Matrices& matrices, std::vector<ParamGroup> param_groups,
                                              SourceLocation where)
    : OptimizerFrame(model, options, with_rest(model, matrices, std::move(param_groups), where), where,
                     Owned<spi::UpdateRunner>(new MatrixLaunches<float>(&rule, products, matrices)),
                     Owned<spi::UpdateRunner>(new MatrixLaunches<double>(&rule, products, matrices))) {}

}  // namespace shardkit::detail SHARDKIT_FACE
