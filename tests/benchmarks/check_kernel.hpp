// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <shardkit/rank/rank.hpp>

#include "planted_kernels.hpp"

namespace benchmarks::kernels {

inline std::uint64_t wrong_after(Workload& workload, std::size_t calls) {
    workload.prepare();
    workload.call(calls);
    return workload.count_wrong();
}

/// Each of the engine's kernels passes its data check; one spoiled element is one wrong value, no call is wrong. Not
/// of a step, which is more than a kernel.
inline void check_kernels(shardkit::Rank& rank) {
    using Spoiled = Planted<shardkit::host::AnyKernels>;
    constexpr std::size_t tensors = 7;
    for (const KernelKind kernel : Options().kernels) {
        for (const DataType type : {DataType::fp32, DataType::bf16}) {
            if (kernel == KernelKind::step) { continue; }
            CAPTURE(kernel_names[static_cast<std::size_t>(kernel)]);
            CAPTURE(type_names[static_cast<std::size_t>(type)]);
            const auto right = make_workload(rank, kernel, type, planted_elements, tensors);
            CHECK(wrong_after(*right, 1) == 0);
            CHECK(wrong_after(*right, 0) > 0);
            const auto spoiled = make_workload<Spoiled>(rank, kernel, type, planted_elements, tensors);
            CHECK(wrong_after(*spoiled, 1) == 1);
        }
    }
}

}  // namespace benchmarks::kernels
