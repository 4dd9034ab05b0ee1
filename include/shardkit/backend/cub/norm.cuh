// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/require_cccl.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <cuda_runtime_api.h>
#include <cub/block/block_reduce.cuh>

#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu::detail {

/// The blocks of a norm: as many as an SM can hold at once, so that no block waits for another.
inline constexpr unsigned norm_threads = 256;
inline constexpr unsigned norm_blocks_per_sm = 3;

/// Memory shared by the blocks of one launch, in the stream's scratch. `finished` is zero between launches.
struct NormScratch {
    unsigned finished;
    alignas(16) shardkit::detail::NormPartial sums[1];  // one for each block
};

/// Sums over all threads: CUB sums within each block, then the block that finishes last sums over the blocks in
/// order.
template <class Pass>
__global__ void __launch_bounds__(norm_threads, norm_blocks_per_sm)
    norm_kernel(const __grid_constant__ Pass pass, NormScratch* scratch, AddToNorm write) {
    using Reduce = ::cub::BlockReduce<shardkit::detail::NormPartial, norm_threads>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ bool last;
    const std::uint64_t first = std::uint64_t{blockIdx.x} * norm_threads + threadIdx.x;
    shardkit::detail::NormPartial sum =
        Reduce(storage).Reduce(pass(first, std::uint64_t{gridDim.x} * norm_threads), AddNormPartials{});
    if (threadIdx.x == 0) {
        scratch->sums[blockIdx.x] = sum;
        __threadfence();
        // The last block resets the count to zero.
        last = atomicInc(&scratch->finished, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) { return; }
    sum = {};
    for (unsigned block = threadIdx.x; block < gridDim.x; block += norm_threads) {
        // Read from L2, where the other blocks' stores are.
        const double* const of_block = &scratch->sums[block].sum_of_squares;
        sum += shardkit::detail::NormPartial{__ldcg(of_block), __ldcg(of_block + 1)};
    }
    sum = Reduce(storage).Reduce(sum, AddNormPartials{});
    if (threadIdx.x == 0) { write(sum); }
}

template <class Pass>
void launch_norm(const gpu::TimelineRef& stream, const Pass& pass, double* into) {
    const DeviceGuard on_device(stream.device());
    int sms = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, stream.device()), "cudaDeviceGetAttribute");
    const std::uint64_t most = std::uint64_t{norm_blocks_per_sm} * static_cast<unsigned>(sms);
    const auto blocks = static_cast<unsigned>(std::min(most, (pass.indices() + norm_threads - 1) / norm_threads));
    const std::size_t needed = offsetof(NormScratch, sums) + blocks * sizeof(shardkit::detail::NormPartial);
    const std::span<std::byte> scratch = stream.scratch();
    if (needed > scratch.size()) {
        throw std::runtime_error(shardkit::detail::concat("gpu::Kernels::norm_partial: the stream has ",
                                                          scratch.size(), " bytes of scratch, the reduction needs ",
                                                          needed));
    }
    norm_kernel<<<blocks, norm_threads, 0, stream.native()>>>(pass, reinterpret_cast<NormScratch*>(scratch.data()),
                                                              AddToNorm{into});
    check(cudaGetLastError(), "norm_partial");
}

/// Defines norm_partial, which norm.hpp declares.
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into) {
    if (pieces.empty()) { return; }
    launch_norm(stream, norm_pass(pieces, positions, scale), into);
}

}  // namespace shardkit::gpu::detail
