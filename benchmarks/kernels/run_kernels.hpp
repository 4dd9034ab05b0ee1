// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include <shardkit/rank/context.hpp>

#include "../common/measure.hpp"
#include "options.hpp"
#include "pack_workload.hpp"
#include "report.hpp"
#include "workloads.hpp"

namespace benchmarks::kernels {

/// The kernel of K on n elements of T, with its buffers; those that pack have at most `tensors` tensors.
template <class K, class T, class Engine>
std::unique_ptr<KernelWorkload> make_workload(shardkit::Context<Engine>& context, KernelKind kernel, std::size_t n,
                                              std::size_t tensors) {
    switch (kernel) {
        case KernelKind::adamw:
            return std::make_unique<AdamW<K, Engine, T>>(context, n);
        case KernelKind::sgd:
            return std::make_unique<Sgd<K, Engine, T>>(context, n);
        case KernelKind::norm:
            return std::make_unique<Norm<K, Engine, T>>(context, n);
        case KernelKind::cast:
            return std::make_unique<Cast<K, Engine, T>>(context, n);
        case KernelKind::accumulate:
            return std::make_unique<Accumulate<K, Engine, T>>(context, n);
        case KernelKind::pack:
            return std::make_unique<Pack<K, Engine, T>>(context, n, tensors);
        case KernelKind::unpack:
            return std::make_unique<Unpack<K, Engine, T>>(context, n, tensors);
    }
    throw std::logic_error("make_workload: no such kernel");
}

/// K: by default the engine's Kernels.
template <class K = void, class Engine>
std::unique_ptr<KernelWorkload> make_workload(shardkit::Context<Engine>& context, KernelKind kernel, DataType type,
                                              std::size_t n, std::size_t tensors) {
    using Chosen = std::conditional_t<std::is_void_v<K>, typename Engine::Kernels, K>;
    return type == DataType::fp32 ? make_workload<Chosen, float>(context, kernel, n, tensors)
                                  : make_workload<Chosen, shardkit::bf16>(context, kernel, n, tensors);
}

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
