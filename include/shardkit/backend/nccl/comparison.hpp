// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Lets the ranks of a group tell each other what they called, over a communicator and on a stream that serve nothing
/// else, so that they get through where the group's own collectives wait for each other.
class Comparison {
  public:
    Comparison(std::size_t ranks, int device, gpu::Watch& watch, SourceLocation where)
        : stream_(where),
          timeline_(stream_.ref(where), {.events = 1, .scratch_bytes = 1, .device = device, .watch = &watch}, where),
          host_(ranks * shardkit::detail::trace_bytes, where),
          device_(ranks * shardkit::detail::trace_bytes, stream_.ref(where), where) {}

    /// Connects the ranks of a new group a second time. Collective over it; the host waits.
    /// @throws CommError
    static void prepare(Connections& connections, Group& group, ncclConfig_t config, SourceLocation where) {
        Group& made =
            connect_again(connections, group, group.made_as, config, "the communicator for comparing calls", where);
        made.only_compares = true;
        group.comparison = &made;
        group.trace = std::make_unique<shardkit::detail::CallTrace>();
    }

    /// Compares all that was called over `group`. Collective over it; the host waits.
    /// @throws CommError, on every rank of the group, when they disagree, and when one does not come within the
    /// timeout
    void require_agreement(Connections& connections, const Group& group, SourceLocation where) {
        const std::string doing = shardkit::detail::concat("compare_calls over ", group.made_as);
        connections.require_usable(doing, where);
        const auto disagreement = shardkit::detail::find_disagreement(
            *group.trace, connections.journal().statements(),
            [&](const auto& value) { return gather(connections, group, value, doing, where); });
        if (disagreement) { connections.fail(doing, *disagreement, where); }
    }

  private:
    /// Returns every rank's value.
    template <class T>
    std::span<const T> gather(Connections& connections, const Group& group, const T& value, std::string_view doing,
                              SourceLocation where) {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= shardkit::detail::trace_bytes);
        const gpu::TimelineRef stream = timeline_.ref();
        const std::size_t own = group.rank * sizeof(T);
        std::memcpy(host_.data() + own, &value, sizeof(T));
        gpu::detail::check(cudaMemcpyAsync(device_.data() + own, host_.data() + own, sizeof(T),
                                           cudaMemcpyHostToDevice, stream.native()),
                           "cudaMemcpyAsync", where);
        connections.complete(*group.comparison, "ncclAllGather",
                             ncclAllGather(device_.data() + own, device_.data(), sizeof(T), ncclUint8,
                                           group.comparison->comm, stream.native()),
                             doing, where);
        gpu::detail::check(cudaMemcpyAsync(host_.data(), device_.data(), group.size * sizeof(T),
                                           cudaMemcpyDeviceToHost, stream.native()),
                           "cudaMemcpyAsync", where);
        stream.synchronize(where);
        return {reinterpret_cast<const T*>(host_.data()), group.size};
    }

    gpu::Stream stream_;
    gpu::Timeline timeline_;
    gpu::detail::PinnedBuffer<std::byte> host_;
    gpu::detail::DeviceBuffer<std::byte> device_;
};

}  // namespace shardkit::nccl::detail
