// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels call constexpr functions that are not __device__: without the flag, each call is an error of its own.
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "shardkit needs nvcc's --expt-relaxed-constexpr"
#endif

#ifdef SHARDKIT_COMPILED
namespace shardkit::gpu {
struct Kernels;  // which the compiled core has
}
#else

#include <shardkit/detail/hide_macros.inc>

#include <cstdint>
#include <span>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cub/launched_kernels.hpp>
#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::gpu {

/// The Kernels of an engine on CUDA devices. Their meaning is that of host::AnyKernels for engines on host
/// memory. This header only declares the kernels; kernels.cuh defines them, for nvcc. Spans and pointers must be
/// memory of the stream's device, aligned as their elements are, of any size.
/// Order:   stream-ordered on `stream`. Nothing is allocated.
/// Numbers: an element's result is that of the host's functor, which nvcc may contract into fused multiply-adds
///          (-fmad=false: the host's bits). Norms are summed in double.
/// @pre     the sizes of a call's spans agree
/// @throws  gpu::Error when a launch fails
struct Kernels : detail::LaunchedKernels<detail::DeviceLaunch> {
    /// Runs first(copy of first.reads()), then work(i) for every i below n, in one launch.
    template <class First, class Work>
    static void run_first(const Stream& stream, const First& first, std::uint64_t n, const Work& work) {
        detail::DeviceLaunch{stream}.behind(first, n, work, "run_first");
    }
    template <FloatingElement T>
    static void norm_partial(const Stream& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                             const double* scale, double* into) {
        detail::norm_partial(stream, pieces, positions, scale, into);
    }
};

}  // namespace shardkit::gpu

#include <shardkit/detail/show_macros.inc>

#endif
