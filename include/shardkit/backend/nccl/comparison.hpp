// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/connect_again.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Gathers every rank's record over `group`, in rank order, through the given memory, which has space for all
/// records. Collective over the group; the host waits.
/// @throws CommError; gpu::Error
template <class Record>
std::vector<Record> gather_records(Connections& connections, const Group& group, const Record& own,
                                   std::byte* on_host, std::byte* on_device, const gpu::TimelineRef& stream,
                                   std::string_view doing, SourceLocation where) {
    static_assert(std::is_trivially_copyable_v<Record>);
    const std::size_t at = group.rank * sizeof(Record);
    std::memcpy(on_host + at, &own, sizeof(Record));
    gpu::detail::check(
        cudaMemcpyAsync(on_device + at, on_host + at, sizeof(Record), cudaMemcpyHostToDevice, stream.native()),
        "cudaMemcpyAsync", where);
    connections.complete(
        group, "ncclAllGather",
        [&](ncclComm_t comm) {
            return ncclAllGather(on_device + at, on_device, sizeof(Record), ncclUint8, comm, stream.native());
        },
        doing, where);
    std::vector<Record> records(group.size);
    gpu::detail::check(
        cudaMemcpyAsync(on_host, on_device, group.size * sizeof(Record), cudaMemcpyDeviceToHost, stream.native()),
        "cudaMemcpyAsync", where);
    stream.synchronize(where);
    std::memcpy(static_cast<void*>(records.data()), on_host, group.size * sizeof(Record));
    return records;
}

/// Compares the calls of a group's ranks, over a communicator and on a stream that serve nothing else, so that the
/// comparison works even when the group's own collectives wait for each other.
class Comparison {
  public:
    Comparison(std::size_t ranks, int device, gpu::Watch& watch, SourceLocation where)
        : stream_(gpu::Priority::usual, where),
          timeline_(stream_.ref(where),
                    {.events = 1, .scratch_bytes = comparison_scratch_bytes, .device = device, .watch = &watch},
                    where),
          host_(gpu::detail::pinned_bytes(ranks * shardkit::detail::trace_bytes, where)),
          device_(gpu::detail::device_bytes(ranks * shardkit::detail::trace_bytes, stream_.ref(where), where)) {}

    /// Connects the ranks of a new group a second time. Collective over the group; the host waits.
    /// @throws CommError
    static void prepare(Connections& connections, Group& group, ncclConfig_t config, SourceLocation where) {
        Group& made =
            connect_again(connections, group, group.made_as, config, "the communicator for comparing calls", where);
        made.only_compares = true;
        group.comparison = &made;
        group.trace = std::make_unique<shardkit::detail::CallTrace>(made.size);
    }

    /// Compares all calls over `group`. Collective over it; the host waits.
    /// @throws CommError, on every rank of the group, when they disagree, or a rank does not come within the timeout
    void require_agreement(Connections& connections, const Group& group, SourceLocation where) {
        const std::string doing = shardkit::detail::concat("compare_calls over ", group.made_as);
        connections.require_usable(doing, where);
        const auto disagreement =
            shardkit::detail::find_disagreement(*group.trace, connections.journal(), [&](const auto& value) {
                static_assert(sizeof value <= shardkit::detail::trace_bytes);
                return gather_records(connections, *group.comparison, value, host_.data(), device_.data(),
                                      timeline_.ref(), doing, where);
            });
        if (disagreement) { connections.fail(doing, *disagreement, where); }
    }

  private:
    gpu::Stream stream_;
    gpu::Timeline timeline_;
    gpu::detail::OwnedBytes host_;
    gpu::detail::OwnedBytes device_;
};

}  // namespace shardkit::nccl::detail
