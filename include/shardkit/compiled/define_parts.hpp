// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/define_optimizers.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/factored/adafactor.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/plan/model_summary.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

// Defines the functions of parts_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

void describe(const Model& groups, Optimizer* optimizer, std::vector<planner::GroupDescription>& into,
              SourceLocation where) {
    into = optimizer == nullptr ? shardkit::describe_groups(groups, where)
                                : shardkit::describe_groups(groups, *optimizer, where);
}
Plan plan(const Model& groups, Optimizer* optimizer, const planner::PlanOptions& options, SourceLocation where) {
    return optimizer == nullptr ? shardkit::plan(groups, options, where)
                                : shardkit::plan(groups, *optimizer, options, where);
}
std::string model_summary(const Model& groups, Optimizer* optimizer, SourceLocation where) {
    return optimizer == nullptr ? shardkit::model_summary(groups, where)
                                : shardkit::model_summary(groups, *optimizer, where);
}

void verify_replicas(const Model& groups, Optimizer* optimizer, const LossScale* loss_scale, SourceLocation where) {
    shardkit::detail::verify_replicas(groups, optimizer, loss_scale, where);
}
std::vector<ValuesHash> hash_values(const Model& groups, SourceLocation where) {
    return shardkit::hash_values(groups, where);
}
std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where) {
    return shardkit::hash_values(reduced, where);
}
std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where) {
    return shardkit::hash_values(optimizer, where);
}
GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where) {
    return shardkit::gradient_norms(reduced, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
