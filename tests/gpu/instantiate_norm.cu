// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/norm.cuh>

// The norm's kernels for each element type.

using shardkit::IndexRange;
using shardkit::gpu::norm_partial;
using shardkit::gpu::TimelineRef;

template void norm_partial(const TimelineRef&, std::span<const double>, std::span<const IndexRange>, const double*,
                           double*);
template void norm_partial(const TimelineRef&, std::span<const float>, std::span<const IndexRange>, const double*,
                           double*);
template void norm_partial(const TimelineRef&, std::span<const shardkit::bf16>, std::span<const IndexRange>,
                           const double*, double*);
template void norm_partial(const TimelineRef&, std::span<const shardkit::fp16>, std::span<const IndexRange>,
                           const double*, double*);
