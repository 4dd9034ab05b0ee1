// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/cub/launches.cuh>

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl {

/// Makes all kernels that groups with a Precision launch with an optimizer of Rule on NCCL, when it is explicitly
/// instantiated in a file of nvcc: those of stores, norms and clipping, steps, and the engine's reductions. A Muon
/// needs those of both its parts: rules::MuonRule and rules::AdamWRule.
///     template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule>;
template <class Precision, class Rule>
struct KernelsFor {
    using All = typename decltype(detail::training_kernels<Precision, Rule>())::template In<gpu::KernelLaunches>;
    static void calls() { static_cast<void>(All::calls()); }
    /// Loads all of them on the selected device (see gpu::KernelLaunches).
    /// @throws gpu::Error
    template <class Where = SourceLocation>
    static void preload(Where where = Where::current()) {
        All::preload(where);
    }
};

/// Makes, likewise, the kernels of a MovingAverage in groups of `Average` of a model of `Of`.
///     template struct shardkit::nccl::AverageKernelsFor<shardkit::DefaultPrecision<float>>;
template <class Average, class Of = Average>
struct AverageKernelsFor {
    using All = typename decltype(detail::average_kernels<Average, Of>())::template In<gpu::KernelLaunches>;
    static void calls() { static_cast<void>(All::calls()); }
    template <class Where = SourceLocation>
    static void preload(Where where = Where::current()) {
        All::preload(where);
    }
};

}  // namespace shardkit::nccl

#include <shardkit/detail/show_macros.inc>
