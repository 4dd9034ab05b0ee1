// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include <shardkit/rank/context.hpp>

#include "../common/measure.hpp"
#include "make_workload.hpp"
#include "row.hpp"

namespace benchmarks::kernels {

/// The engine's kernels, each in all sizes, beside the copies of the yardstick; `launches(workload)` goes into the
/// rows. Collective over the world.
template <class Yardstick, class Engine, class Launches>
void run_kernels(shardkit::Context<Engine>& context, const Options& options, const RowSink& sink,
                 const Launches& launches) {
    for (const KernelKind kernel : options.kernels) {
        for (const DataType type : options.types) {
            Row row;
            row.kernel = kernel;
            row.type = type;
            const std::size_t each = bytes_per_element(kernel, type);
            for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;
                 bytes = options.size_after(bytes)) {
                const std::uint64_t elements = std::max<std::uint64_t>(1, bytes / each);
                if (elements == row.elements) { continue; }  // of the size before
                row.elements = elements;
                row.bytes = elements * each;
                const std::unique_ptr<KernelWorkload> workload =
                    make_workload(context, kernel, type, elements, options.tensors);
                row.tensors = workload->tensors();
                row.figure = measure<Yardstick>(context, options, row.bytes, (row.bytes + 1) / 2, *workload);
                row.launches = launches(*workload);
                if (context.rank() == 0) { sink(row); }
            }
        }
    }
}

}  // namespace benchmarks::kernels
