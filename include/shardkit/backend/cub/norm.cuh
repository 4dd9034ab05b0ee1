// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/require_cccl.cuh>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/tabulate_output_iterator.h>
#include <cub/device/device_reduce.cuh>

#include <shardkit/backend/cub/norm.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::gpu {

/// The definition of what norm.hpp declares.
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const NormPiece<T>> pieces, IndexRange positions,
                  const double* scale, double* into) {
    if (pieces.empty()) { return; }
    const NormPass<T> pass = norm_pass(pieces, positions, scale);
    const gpu::DeviceGuard on_device(stream.device());
    const auto reduce = [&](void* scratch, std::size_t& bytes) {
        gpu::check(::cub::DeviceReduce::TransformReduce(scratch, bytes, ::thrust::counting_iterator<std::uint64_t>(0),
                                                        ::thrust::make_tabulate_output_iterator(AddToNorm{into}),
                                                        pass.vectors(), AddNormPartials{}, pass,
                                                        shardkit::detail::NormPartial{}, stream.native()),
                   "norm_partial");
    };
    std::size_t needed = 0;
    reduce(nullptr, needed);
    const std::span<std::byte> scratch = stream.scratch();
    if (needed > scratch.size()) {
        throw std::runtime_error(shardkit::detail::concat("gpu::Kernels::norm_partial: the stream has ",
                                                          scratch.size(), " bytes of scratch, the reduction needs ",
                                                          needed));
    }
    reduce(scratch.data(), needed);
}

}  // namespace shardkit::gpu
