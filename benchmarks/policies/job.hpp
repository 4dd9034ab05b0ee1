// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <shardkit/plan/time_model.hpp>

#include "busy_work.hpp"
#include "options.hpp"
#include "row.hpp"

namespace benchmarks::policies {

/// What is to be measured on one mesh.
struct Job {
    const Options& options;
    program::MeshExtents mesh;
    BusyWork busy;
    const shardkit::TimeModel::Links* links = nullptr;  ///< null: nothing is predicted
};

/// Takes a policy's figures, where rank 0 is.
using RowSink = std::function<void(const Row&)>;

}  // namespace benchmarks::policies
