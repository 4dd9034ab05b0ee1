// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/kernels/norm_sum.hpp>

namespace shardkit::gpu::detail {

/// The blocks of a norm: as many as an SM can hold at once, so that no block waits for another.
inline constexpr unsigned norm_threads = 256;
inline constexpr unsigned norm_blocks_per_sm = 3;

/// Memory shared by the blocks of one launch, in the stream's scratch: all zero between launches.
struct NormScratch {
    unsigned finished;
    unsigned long long parts[shardkit::detail::NormSum::numbers];
};

/// The warp of this thread, as NormPass sees it.
struct DeviceWarp {
    unsigned thread;

    template <class Value>
    __device__ Value choose(unsigned distance, const Value& first, const Value& second) const {
        return (thread & distance) == 0 ? first : second;
    }
    template <class Value>
    __device__ Value exchange(unsigned distance, const Value& value) const {
        return __shfl_xor_sync(~0U, value, distance);
    }
};

/// Adds to the parts of a NormSum that other threads add to as well; integers, so their order does not matter.
struct AddAtomically {
    unsigned long long* parts;

    __device__ void operator()(std::size_t i, std::int64_t amount) const {
        atomicAdd(parts + i, static_cast<unsigned long long>(amount));
    }
};

/// Sums over all threads: each in its registers, then in the block's shared memory, then in the scratch. The block
/// that finishes last adds the result.
template <class Pass>
__global__ void __launch_bounds__(norm_threads, norm_blocks_per_sm)
    norm_kernel(const __grid_constant__ Pass pass, NormScratch* scratch, double* into) {
    using A = typename Pass::A;
    using Sum = shardkit::detail::NormSum;
    __shared__ unsigned long long parts[Sum::numbers];
    __shared__ bool last;
    for (unsigned i = threadIdx.x; i < Sum::numbers; i += norm_threads) { parts[i] = 0; }
    __syncthreads();

    const DeviceWarp in_warp{threadIdx.x % static_cast<unsigned>(warp)};
    const bool first_of_two = in_warp.thread % 2 == 0;
    NormThread<A, AddAtomically> thread(AddAtomically{parts});
    const std::uint64_t stride = std::uint64_t{gridDim.x} * norm_threads;
    // All threads of a warp are in one chunk, so they leave the loop together.
    for (std::uint64_t index = std::uint64_t{blockIdx.x} * norm_threads + threadIdx.x; index < pass.indices();
         index += stride) {
        const auto loaded = pass.load(index);
        A squares[Pass::vectors * Pass::lanes];
        for (std::size_t i = 0; i < Pass::vectors * Pass::lanes; ++i) {
            squares[i] = pass.template square<A>(loaded.vector[i / Pass::lanes].lane[i % Pass::lanes]);
        }
        const A sum = Pass::pack_sum(squares, in_warp);
        const bool held = shardkit::detail::holds_squares(sum);
        if (held && first_of_two) { thread.take(sum); }
        if (__any_sync(~0U, !held) == 0) { continue; }
        // Rare: loaded again, so that the registers of what follows are not taken from what is above.
        double apart = 0;
        bool finite = true;
#pragma unroll 1
        for (std::size_t v = 0; v < Pass::vectors; ++v) {
            const auto elements = pass.load(index, v);
            double again[Pass::lanes];
            for (std::size_t i = 0; i < Pass::lanes; ++i) {
                again[i] = pass.template square<double>(elements.lane[i]);
            }
            const double of_vector = Pass::pack_sum(again, in_warp);
            apart = v == Pass::vector_of(in_warp.thread) ? of_vector : apart;
            finite = finite && pass.finite(elements);
        }
        if (!held && first_of_two) { thread.take_apart(apart); }
        if (!finite) { AddAtomically{parts}(shardkit::ExactSum::numbers, 1); }
    }
    thread.end();
    __syncthreads();
    for (unsigned i = threadIdx.x; i < Sum::numbers; i += norm_threads) {
        if (parts[i] != 0) { atomicAdd(scratch->parts + i, parts[i]); }
    }
    __threadfence();
    __syncthreads();
    // The last block resets the count to zero.
    if (threadIdx.x == 0) { last = atomicInc(&scratch->finished, gridDim.x - 1) == gridDim.x - 1; }
    __syncthreads();
    if (!last) { return; }
    for (unsigned i = threadIdx.x; i < Sum::numbers; i += norm_threads) {
        parts[i] = atomicExch(scratch->parts + i, 0ULL);
    }
    __syncthreads();
    if (threadIdx.x != 0) { return; }
    Sum::add_to(into, [&](std::size_t i) { return static_cast<std::int64_t>(parts[i]); });
}

/// Defines norm_partial, which norm.hpp declares.
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const engine::NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into) {
    if (pieces.empty()) { return; }
    const NormPass<T> pass = norm_pass(pieces, positions, scale);
    const DeviceGuard on_device(stream.device());
    int sms = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, stream.device()), "cudaDeviceGetAttribute");
    const std::uint64_t most = std::uint64_t{norm_blocks_per_sm} * static_cast<unsigned>(sms);
    const auto blocks = static_cast<unsigned>(std::min(most, (pass.indices() + norm_threads - 1) / norm_threads));
    const std::span<std::byte> scratch = stream.scratch();
    if (sizeof(NormScratch) > scratch.size()) {
        throw std::runtime_error(shardkit::detail::concat("gpu::Kernels::norm_partial: the stream has ",
                                                          scratch.size(), " bytes of scratch, the reduction needs ",
                                                          sizeof(NormScratch)));
    }
    norm_kernel<<<blocks, norm_threads, 0, stream.native()>>>(pass, reinterpret_cast<NormScratch*>(scratch.data()),
                                                              into);
    check(cudaGetLastError(), "norm_partial");
}

}  // namespace shardkit::gpu::detail
