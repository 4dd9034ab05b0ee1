// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/thrust/require_cccl.cuh>

#include <cstddef>
#include <span>

#include <thrust/memory.h>
#include <thrust/type_traits/is_contiguous_iterator.h>
#include <thrust/type_traits/unwrap_contiguous_iterator.h>

namespace shardkit::gpu {

/// Returns the elements of [first, last) as a span of device memory, from Thrust's iterators over contiguous memory,
/// such as those of a device_vector or a device_ptr. The owner keeps the memory.
template <class Iterator>
auto to_span(Iterator first, Iterator last) {
    static_assert(::thrust::is_contiguous_iterator_v<Iterator>,
                  "to_span: the iterators must go over one piece of memory, as a device_vector's do");
    auto* const data = ::thrust::raw_pointer_cast(::thrust::unwrap_contiguous_iterator(first));
    return std::span(data, static_cast<std::size_t>(last - first));
}

/// Returns a whole device_vector, or another range with such iterators, as a span; const for a constant one.
template <class Range>
auto to_span(Range& range) {
    return to_span(range.begin(), range.end());
}

}  // namespace shardkit::gpu
