// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/backend/cuda/timeline_ref.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::gpu {

/// Adds the sum of (*scale * gradient[i])^2 over `segments` to into[0], and the number of elements there that are
/// infinite or NaN to into[1]. Defined in norm_partial.cuh, as the call of DeviceLaunch.
/// Order:  stream-ordered. Squares in Arithmetic<T>, sums in double, in an order that depends on the GPU's model, the
///         size of the span and its alignment alone: the same bits on every run.
/// Cost:   one pass; two launches, one where a few blocks suffice.
/// @pre    segments are sorted, disjoint and inside `gradient`
/// @throws std::runtime_error when the stream's scratch is too small, which names both sizes
template <FloatingElement T>
void norm_partial(const gpu::TimelineRef& stream, std::span<const T> gradient, std::span<const IndexRange> segments,
                  const double* scale, double* into);

}  // namespace shardkit::gpu
