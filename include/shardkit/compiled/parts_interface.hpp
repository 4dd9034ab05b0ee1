// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/verify/reports.hpp>

// What a trainer's file calls of the parts in the compiled form; compiled_parts.hpp defines it.

namespace shardkit {
struct Plan;
class TrafficLog;
namespace planner {
struct GroupDescription;
struct PlanOptions;
}  // namespace planner
namespace recorder {
struct RecentCall;
}
}  // namespace shardkit

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

// Plans. Null `optimizer`: none is there yet.
void describe(const Model& groups, Optimizer* optimizer, std::vector<planner::GroupDescription>& into,
              SourceLocation where);
Plan plan(const Model& groups, Optimizer* optimizer, const planner::PlanOptions& options, SourceLocation where);
std::string model_summary(const Model& groups, Optimizer* optimizer, SourceLocation where);

// Checks and statistics.
void verify_replicas(const Model& groups, Optimizer* optimizer, const LossScale* loss_scale, SourceLocation where);
std::vector<ValuesHash> hash_values(const Model& groups, SourceLocation where);
std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where);
std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where);
GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where);
std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count, std::size_t bytes,
                           SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
