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

/// The definition of what norm_partial.hpp declares.
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const T> gradient, std::span<const IndexRange> segments,
                  const double* scale, double* into) {
    using Pass = NormPass<T>;
    if (gradient.empty() || segments.empty()) { return; }
    const Pass pass{gradient.data(), segments.data(), segments.size(), scale,
                    tile<Pass::lanes>(gradient.size(), gradient.data())};
    const gpu::DeviceGuard on_device(stream.device());
    const auto reduce = [&](void* scratch, std::size_t& bytes) {
        gpu::check(::cub::DeviceReduce::TransformReduce(scratch, bytes, ::thrust::counting_iterator<std::uint64_t>(0),
                                                        ::thrust::make_tabulate_output_iterator(AddToNorm{into}),
                                                        pass.tiling.vectors(), AddNormPartials{}, pass,
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
