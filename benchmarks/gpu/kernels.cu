// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/backend/cub/kernels.cuh>
#include <shardkit/backend/cub/update.hpp>
#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/precision.hpp>

// All device code of the benchmarks: their other sources declare it and go through the host's compiler.

using shardkit::bf16;
using shardkit::fp16;
using shardkit::IndexRange;
using shardkit::engine::NormPiece;
using shardkit::gpu::TimelineRef;
using shardkit::gpu::detail::AccumulatePass;
using shardkit::gpu::detail::ConvertPass;
using shardkit::gpu::detail::ConvertRowsPass;
using shardkit::gpu::detail::DeviceLaunch;
using shardkit::gpu::detail::norm_partial;
using shardkit::gpu::detail::PackDirection;
using shardkit::gpu::detail::PackPass;
using shardkit::gpu::detail::UpdatePass;
using shardkit::rules::AdamWUpdate;
using shardkit::rules::SgdUpdate;
using Indices = std::uint64_t;
using Name = std::string_view;

// The optimizers and the precision.
template void DeviceLaunch::operator()(Indices, const UpdatePass<AdamWUpdate<float>, float, float, float, 2>&,
                                       Name) const;
template void DeviceLaunch::operator()(Indices, const UpdatePass<AdamWUpdate<float>, float, bf16, bf16, 2>&,
                                       Name) const;
template void DeviceLaunch::operator()(Indices, const UpdatePass<SgdUpdate<float>, float, float, float, 1>&,
                                       Name) const;
template void DeviceLaunch::operator()(Indices, const UpdatePass<SgdUpdate<float>, float, bf16, bf16, 1>&,
                                       Name) const;
template void norm_partial(const TimelineRef&, std::span<const NormPiece<float>>, IndexRange, const double*, double*);
template void norm_partial(const TimelineRef&, std::span<const NormPiece<bf16>>, IndexRange, const double*, double*);
template void DeviceLaunch::operator()(Indices, const ConvertPass<float, bf16>&, Name) const;
template void DeviceLaunch::operator()(Indices, const ConvertPass<bf16, float>&, Name) const;
template void DeviceLaunch::operator()(Indices, const AccumulatePass<float, float>&, Name) const;
template void DeviceLaunch::operator()(Indices, const AccumulatePass<bf16, float>&, Name) const;
template void DeviceLaunch::operator()(Indices, const PackPass<float, PackDirection::pack>&, Name) const;
template void DeviceLaunch::operator()(Indices, const PackPass<float, PackDirection::unpack>&, Name) const;
template void DeviceLaunch::operator()(Indices, const PackPass<bf16, PackDirection::pack>&, Name) const;
template void DeviceLaunch::operator()(Indices, const PackPass<bf16, PackDirection::unpack>&, Name) const;

// Reductions of 16-bit elements, sums in rank order and along trees, and extremes of floating ones.
template void DeviceLaunch::operator()(Indices, const ConvertPass<float, fp16>&, Name) const;
template void DeviceLaunch::operator()(Indices, const ConvertPass<fp16, float>&, Name) const;
template void DeviceLaunch::operator()(Indices, const ConvertRowsPass<fp16, float>&, Name) const;
template struct shardkit::nccl::detail::CombinedFor<double, double>;
template struct shardkit::nccl::detail::CombinedFor<float, float>;
template struct shardkit::nccl::detail::CombinedFor<bf16, bf16>;
template struct shardkit::nccl::detail::CombinedFor<fp16, fp16>;

// Whole steps.
template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule>;
template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<bf16>, shardkit::rules::AdamWRule>;
