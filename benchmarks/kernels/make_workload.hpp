// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>

#include "options.hpp"
#include "workloads.hpp"

namespace benchmarks::kernels {

/// The kernel of K on n elements of T, with its buffers.
template <class K, class T>
std::unique_ptr<Workload> make_workload(KernelKind kernel, std::size_t n) {
    switch (kernel) {
        case KernelKind::adamw:
            return std::make_unique<AdamW<K, T>>(n);
        case KernelKind::sgd:
            return std::make_unique<Sgd<K, T>>(n);
        case KernelKind::norm:
            return std::make_unique<Norm<K, T>>(n);
        case KernelKind::cast:
            return std::make_unique<Cast<K, T>>(n);
        case KernelKind::accumulate:
            return std::make_unique<Accumulate<K, T>>(n);
    }
    throw std::logic_error("make_workload: unknown kernel");
}

template <class K>
std::unique_ptr<Workload> make_workload(KernelKind kernel, DataType type, std::size_t n) {
    return type == DataType::fp32 ? make_workload<K, float>(kernel, n) : make_workload<K, shardkit::bf16>(kernel, n);
}

}  // namespace benchmarks::kernels
