// SPDX-License-Identifier: Apache-2.0
// Linked with the main of the kernels in place of run_on_host.cpp: a norm that is spoiled, measured and checked as
// any other.
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/common/measure.hpp"
#include "../../benchmarks/kernels/report.hpp"
#include "planted_kernels.hpp"

namespace benchmarks::kernels {

void run_on_host(const Options& options, const RowSink& sink) {
    shardkit::self::run(shardkit::DeviceMesh<1>{}, [&](shardkit::Rank& rank) {
        Norm<Planted<shardkit::host::AnyKernels>, float> workload(rank, planted_elements, 1);
        Row row;
        row.kernel = KernelKind::norm;
        row.elements = planted_elements;
        row.bytes = planted_elements * sizeof(float);
        row.figure = time_beside_copy(rank, options, row.bytes, row.bytes / 2, workload);
        sink(row);
    });
}

}  // namespace benchmarks::kernels
