// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/thrust/require_cccl.cuh>

#include <cstddef>

#include <thrust/device_ptr.h>

namespace shardkit::gpu {

/// Returns Thrust's iterator to the first element of a span or a TensorView in device memory. Algorithms on such
/// iterators run on the device. Without a policy they use the default stream, so pass
/// thrust::cuda::par_nosync.on(stream).
template <class View>
auto device_begin(const View& view) {
    return ::thrust::device_pointer_cast(view.data());
}
/// Returns the matching end of device_begin.
template <class View>
auto device_end(const View& view) {
    return device_begin(view) + static_cast<std::ptrdiff_t>(view.size());
}

}  // namespace shardkit::gpu
