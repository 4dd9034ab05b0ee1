// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <shardkit/backend/cub/launch.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>

namespace shardkit::gpu::detail {

/// A block's threads, and the indices of each: one, where a work itself takes several vectors in turn.
inline constexpr unsigned tile_threads = 256;
template <class Work>
inline constexpr unsigned tile_turns = 2;
template <class Work>
requires(Work::vectors_in_turn > 1) inline constexpr unsigned tile_turns<Work> = 1;

/// The blocks that an SM must hold at once, where a work says how many: nvcc gives a thread no more registers than
/// leave room for them. 0: it decides.
template <class Work>
inline constexpr unsigned least_blocks = 0;
template <class Work>
requires(Work::least_blocks > 0) inline constexpr unsigned least_blocks<Work> = Work::least_blocks;

/// A block has a tile of adjacent indices, of which its threads take adjacent ones in each turn.
template <class Work>
__global__ void __launch_bounds__(tile_threads, least_blocks<Work>) for_each_kernel(std::uint64_t count, Work work) {
    constexpr std::uint64_t tile = tile_threads * tile_turns<Work>;
    const std::uint64_t begin = blockIdx.x * tile;
    // In 32 bits, which takes fewer instructions.
    const auto left = static_cast<unsigned>(count - begin < tile ? count - begin : tile);
    // The turns are a loop: unrolled, nvcc 13.0 needs more registers for a work or spills, and no turn's loads could
    // come before the stores of the one before.
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < left; at += tile_threads) {
        work(begin + at);
        if constexpr (tile_turns<Work> == 1) { return; }
    }
}

template <class Work>
void DeviceLaunch::operator()(std::uint64_t count, const Work& work, std::string_view kernel) const {
    if (count == 0) { return; }
    const DeviceGuard on_device(stream_.device());
    const std::uint64_t tiles = (count - 1) / (tile_threads * tile_turns<Work>)+1;
    constexpr std::uint64_t most = 0x7fff'ffff;  // blocks of a launch
    if (tiles > most) { check(cudaErrorInvalidConfiguration, kernel); }
    for_each_kernel<<<static_cast<unsigned>(tiles), tile_threads, 0, stream_.native()>>>(count, work);
    check(cudaGetLastError(), kernel);
}

/// The threads of a launch whose works wait for its first.
inline constexpr unsigned first_threads = 128;

/// One block: loads what the first work reads, does it in one thread, and then the others.
template <class First, class Work>
__global__ void __launch_bounds__(first_threads)
    first_kernel(const __grid_constant__ First first, std::uint64_t count, const __grid_constant__ Work work) {
    __shared__ double read[First::most_reads];
    const double* const from = first.reads().data();
    const std::size_t reads = first.reads().size();
    for (unsigned i = threadIdx.x; i < reads; i += first_threads) { read[i] = from[i]; }
    __syncthreads();
    if (threadIdx.x == 0) { first(read); }
    __syncthreads();
    for (std::uint64_t i = threadIdx.x; i < count; i += first_threads) { work(i); }
}

template <class First, class Work>
void DeviceLaunch::behind(const First& first, std::uint64_t count, const Work& work, std::string_view kernel) const {
    const DeviceGuard on_device(stream_.device());
    first_kernel<<<1, first_threads, 0, stream_.native()>>>(first, count, work);
    check(cudaGetLastError(), kernel);
}

}  // namespace shardkit::gpu::detail
