// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/plan/plan.hpp>

#include "options.hpp"

namespace benchmarks::policies {

/// What the planner needs to know of a policy on a mesh.
shardkit::PolicyValues traits_of(const Options& options, const program::MeshExtents& mesh,
                                 program::PolicyKind policy);

/// The plan of the model on a mesh that need not be there, for an engine like threads.
/// @throws std::length_error when a count overflows
shardkit::Plan plan_model(const Options& options, const program::MeshExtents& mesh, program::PolicyKind policy);

}  // namespace benchmarks::policies
