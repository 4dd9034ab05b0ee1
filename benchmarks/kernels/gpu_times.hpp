// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/stream.hpp>
#include <shardkit/rank/rank.hpp>

#include "engine_workload.hpp"
#include "graph_workload.hpp"
#include "report.hpp"

namespace benchmarks::kernels {

/// How a row is timed on a GPU, by calls or by launches of a graph, and how many operations a call is there.
struct GpuTimes {
    shardkit::Streams streams;
    bool graph;

    template <class Measure>
    void operator()(Row& row, KernelWorkload& workload, const Measure& measure) const {
        GraphWorkload captured(streams, workload);
        if (graph) {
            measure(captured);
        } else {
            measure(workload);
            captured.call(1);
        }
        row.graph = graph;
        row.launches = captured.nodes();
    }
};

}  // namespace benchmarks::kernels
