// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <memory>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "make_workload.hpp"
#include "row.hpp"

namespace benchmarks::kernels {

namespace {

using Engine = shardkit::threads::Engine;

void run_kernel(shardkit::Context<Engine>& context, const Options& options, Row row, const RowSink& sink) {
    const std::size_t each = bytes_per_element(row.kernel, row.type);
    for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.step_factor) {
        const std::uint64_t elements = std::max<std::uint64_t>(1, bytes / each);
        if (elements == row.elements) { continue; }  // of the size before
        row.elements = elements;
        row.bytes = elements * each;
        const std::unique_ptr<Workload> workload = make_workload<Engine::Kernels>(row.kernel, row.type, elements);
        row.figure = measure(context, options, row.bytes, (row.bytes + 1) / 2, *workload);
        if (context.rank() == 0) { sink(row); }
    }
}

}  // namespace

void run(const Options& options, const RowSink& sink) {
    shardkit::threads::run(shardkit::DeviceMesh(options.ranks), [&](auto& rank) {
        if (options.pin) { pin_to(allowed_processors(), rank.rank()); }
        for (const KernelKind kernel : options.kernels) {
            for (const DataType type : options.types) {
                Row row;
                row.kernel = kernel;
                row.type = type;
                run_kernel(rank, options, row, sink);
            }
        }
    });
}

}  // namespace benchmarks::kernels
