// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/norm.cuh>

// The norm's kernels for each element type.

using shardkit::IndexRange;
using shardkit::engine::NormPiece;
using shardkit::gpu::TimelineRef;
using shardkit::gpu::detail::norm_partial;

template void norm_partial(const TimelineRef&, std::span<const NormPiece<double>>, IndexRange, const double*,
                           double*);
template void norm_partial(const TimelineRef&, std::span<const NormPiece<float>>, IndexRange, const double*, double*);
template void norm_partial(const TimelineRef&, std::span<const NormPiece<shardkit::bf16>>, IndexRange, const double*,
                           double*);
template void norm_partial(const TimelineRef&, std::span<const NormPiece<shardkit::fp16>>, IndexRange, const double*,
                           double*);
