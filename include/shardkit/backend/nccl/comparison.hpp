// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl {

/// How the ranks of a group tell each other what they called: over a communicator and on a stream that serve nothing
/// else, so that they get through where the group's own collectives wait for each other.
class Comparison {
  public:
    Comparison(std::size_t ranks, int device, gpu::Watch& watch, SourceLocation where)
        : stream_(where),
          timeline_(stream_.ref(where), {.events = 1, .scratch_bytes = 1, .device = device, .watch = &watch}, where),
          host_(ranks * shardkit::detail::trace_bytes, where),
          device_(ranks * shardkit::detail::trace_bytes, stream_.ref(where), where) {}

    /// Every rank's value. Collective over the group; the host waits.
    /// @throws CommError when a call fails or a rank does not come within the timeout
    template <class T>
    std::span<const T> gather(Connections& connections, const Group& group, const T& value, std::string_view doing,
                              SourceLocation where) {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= shardkit::detail::trace_bytes);
        const gpu::TimelineRef stream = timeline_.ref();
        const std::size_t own = group.rank * sizeof(T);
        std::memcpy(host_.data() + own, &value, sizeof(T));
        gpu::check(cudaMemcpyAsync(device_.data() + own, host_.data() + own, sizeof(T), cudaMemcpyHostToDevice,
                                   stream.native()),
                   "cudaMemcpyAsync", where);
        connections.complete(*group.comparison, "ncclAllGather",
                             ncclAllGather(device_.data() + own, device_.data(), sizeof(T), ncclUint8,
                                           group.comparison->comm, stream.native()),
                             doing, where);
        gpu::check(cudaMemcpyAsync(host_.data(), device_.data(), group.size * sizeof(T), cudaMemcpyDeviceToHost,
                                   stream.native()),
                   "cudaMemcpyAsync", where);
        stream.synchronize(where);
        return {reinterpret_cast<const T*>(host_.data()), group.size};
    }

  private:
    gpu::Stream stream_;
    gpu::Timeline timeline_;
    gpu::PinnedBuffer<std::byte> host_;
    gpu::DeviceBuffer<std::byte> device_;
};

}  // namespace shardkit::nccl
