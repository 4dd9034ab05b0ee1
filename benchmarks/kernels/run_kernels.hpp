// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <shardkit/rank/rank.hpp>

#include "../common/measure.hpp"
#include "options.hpp"
#include "pack_workload.hpp"
#include "report.hpp"
#include "step_workload.hpp"
#include "workloads.hpp"

namespace benchmarks::kernels {

/// The kernel of K on n elements of T, with its buffers, in at most `parts` parts: tensors of those that pack, groups
/// of a step (which takes the engine's kernels), runs of others.
template <class K, class T>
std::unique_ptr<KernelWorkload> make_workload(shardkit::Rank& rank, KernelKind kernel, std::size_t n,
                                              std::size_t parts) {
    switch (kernel) {
        case KernelKind::adamw:
            return std::make_unique<AdamW<T>>(rank, n, parts);
        case KernelKind::sgd:
            return std::make_unique<Sgd<T>>(rank, n, parts);
        case KernelKind::norm:
            return std::make_unique<Norm<K, T>>(rank, n, parts);
        case KernelKind::cast:
            return std::make_unique<Cast<K, T>>(rank, n);
        case KernelKind::accumulate:
            return std::make_unique<Accumulate<K, T>>(rank, n);
        case KernelKind::pack:
            return std::make_unique<Pack<K, T>>(rank, n, parts);
        case KernelKind::unpack:
            return std::make_unique<Unpack<K, T>>(rank, n, parts);
        case KernelKind::step:
            return std::make_unique<Step<T>>(rank, n, parts);
    }
    throw std::logic_error("make_workload: no such kernel");
}

/// K: by default the engine's Kernels.
template <class K = void>
std::unique_ptr<KernelWorkload> make_workload(shardkit::Rank& rank, KernelKind kernel, DataType type, std::size_t n,
                                              std::size_t parts) {
    using Chosen = std::conditional_t<std::is_void_v<K>, shardkit::host::AnyKernels, K>;
    return type == DataType::fp32 ? make_workload<Chosen, float>(rank, kernel, n, parts)
                                  : make_workload<Chosen, shardkit::bf16>(rank, kernel, n, parts);
}

/// Into how many parts a kernel's rows are cut.
inline std::vector<std::size_t> parts_of(KernelKind kernel, const Options& options) {
    if (packs(kernel)) { return {options.tensors}; }
    if (kernel == KernelKind::step) { return options.groups; }
    return takes_runs(kernel) ? options.runs : std::vector<std::size_t>{1};
}

/// The engine's kernels, each in all sizes, beside plain copies; `time(row, workload, measure)` calls
/// measure(workload), or another one around it, and says what else it knows of the row. Collective over the world.
template <class Time>
void run_kernels(shardkit::Rank& rank, const Options& options, const RowSink& sink, const Time& time) {
    const auto run = [&](Row& row, std::size_t parts) {
        const std::unique_ptr<KernelWorkload> workload =
            make_workload(rank, row.kernel, row.type, row.elements, parts);
        row.tensors = workload->tensors();
        row.runs = workload->runs();
        row.groups = workload->groups();
        time(row, *workload, [&](Workload& timed) {
            row.figure = time_beside_copy(rank, options, row.bytes, (row.bytes + 1) / 2, timed);
        });
        if (rank.rank() == 0) { sink(row); }
    };
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
                for (const std::size_t parts : parts_of(kernel, options)) { run(row, parts); }
            }
        }
    }
}

}  // namespace benchmarks::kernels
