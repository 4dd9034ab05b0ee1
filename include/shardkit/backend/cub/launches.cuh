// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/cub/kernels.cuh>

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu::detail {

/// A __global__ function in a list of those that a kernel is launched as.
struct Launched {
    const void* function;
    const Launched* next;
};
template <class Kernel>
inline constinit const Launched* launched_as = nullptr;
/// Adds a function to the list before main.
template <class Kernel, auto* function>
struct LaunchedAs {
    static const Launched added;
};
template <class Kernel, auto* function>
const Launched LaunchedAs<Kernel, function>::added{reinterpret_cast<const void*>(function),
                                                   std::exchange(launched_as<Kernel>, &added)};

/// Kernels of which each function that launches something is never called: that it is compiled adds what it would
/// launch to the list of `Kernel`.
template <class Kernel>
struct NotedLaunch {
    using Stream = gpu::TimelineRef;

    explicit NotedLaunch(const Stream& /*stream*/) {}
    template <class Work>
    void operator()(std::uint64_t /*count*/, const Work& /*work*/, std::string_view /*kernel*/) const {
        static_cast<void>(&LaunchedAs<Kernel, &for_each_kernel<Work>>::added);
    }
};
template <class Kernel>
struct NotedKernels : LaunchedKernels<NotedLaunch<Kernel>> {
    template <class First, class Work>
    static void run_first(const gpu::TimelineRef& /*stream*/, const First& /*first*/, std::uint64_t /*n*/,
                          const Work& /*work*/) {
        static_cast<void>(&LaunchedAs<Kernel, &first_kernel<First, Work>>::added);
    }
    template <FloatingElement T>
    static void norm_partial(const gpu::TimelineRef& /*stream*/, std::span<const engine::NormPiece<T>> /*pieces*/,
                             IndexRange /*positions*/, const double* /*scale*/, double* /*into*/) {
        static_cast<void>(&LaunchedAs<Kernel, &norm_kernel<NormPass<T>>>::added);
    }
};

}  // namespace shardkit::gpu::detail

namespace shardkit::engine {

/// Launches any kernel that gpu::Kernels has.
template <class Kernel>
struct DeviceLaunchOf {
    static void run(const Stream& stream, const Kernel& kernel) {
        kernel.template on<gpu::Kernels>(gpu::TimelineRef(stream));
    }
    /// Loads all that it may be launched as.
    /// @throws gpu::Error
    static void load(SourceLocation where) {
        static_cast<void>(&Kernel::template on<gpu::detail::NotedKernels<Kernel>, gpu::TimelineRef>);
        for (const auto* each = gpu::detail::launched_as<Kernel>; each != nullptr; each = each->next) {
            cudaFuncAttributes attributes{};
            gpu::detail::check(cudaFuncGetAttributes(&attributes, each->function), "cudaFuncGetAttributes", where);
        }
    }
};

}  // namespace shardkit::engine

namespace shardkit::gpu {

/// Makes the launches of functors, those of a program and of layers split over tp, when it is explicitly instantiated
/// in a file of nvcc:
///     template struct shardkit::gpu::Launches<shardkit::tp::LossOfToken<float>>;
template <class... Work>
struct Launches {
    using All = KernelLaunches<std::conditional_t<std::invocable<const Work&, std::uint64_t>,
                                                  engine::ForEachIndex<Work>, engine::RunOnce<Work>>...>;
    static void calls() { static_cast<void>(All::calls()); }
    template <class Where = SourceLocation>
    static void preload(Where where = Where::current()) {
        All::preload(where);
    }
};

}  // namespace shardkit::gpu

#include <shardkit/detail/show_macros.inc>
