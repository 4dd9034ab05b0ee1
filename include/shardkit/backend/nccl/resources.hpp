// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/registered.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl::detail {

/// The CUDA resources of a World: streams and memory, all made at once on the current device.
struct Resources {
    /// The largest chunk for a rank's own tables, which are small.
    static constexpr std::size_t local_chunk_bytes = std::size_t{2} << 20U;
    /// The largest record that a rank sends to the others at a time, when they split.
    static constexpr std::size_t record_bytes = sizeof(shared::detail::GroupNumbers);
    /// Each event is waited for as soon as it is recorded.
    static constexpr std::size_t conversion_events = 1;
    /// A fetch is waited for once the next one is given.
    static constexpr std::size_t copy_events = 4;

    Resources(const Options& options, int device, std::size_t ranks, gpu::Watch& watch, SourceLocation where)
        : compute(stream(options.compute, own_compute, gpu::Priority::usual, where),
                  {.device = device, .watch = &watch}, where),
          communication(stream(options.communication, own_communication, gpu::Priority::greatest, where),
                        {.device = device, .watch = &watch}, where),
          conversion(own_conversion.ref(where),
                     {.events = conversion_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          to_device(own_to_device.ref(where),
                    {.events = copy_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          to_host(own_to_host.ref(where),
                  {.events = copy_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          host_calls(own_host_calls.ref(where),
                     {.events = copy_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          chunks(options.registration == Registration::none
                     ? std::unique_ptr<gpu::detail::ChunkSource>(new gpu::detail::DeviceChunks(device))
                     : std::make_unique<NcclChunks>(device)),
          arena(*chunks, options.arena_chunk_bytes, where),
          local_chunks(device),
          local_arena(local_chunks, std::min(options.arena_chunk_bytes, local_chunk_bytes), where),
          staging(arena, staging_size(options, ranks), communication.ref(), where),
          host_records(ranks * record_bytes, where) {
        if (!separates_reductions(options, ranks)) { return; }
        own_reduction.emplace(gpu::Priority::greatest, where);
        reduction.emplace(own_reduction->ref(where), gpu::TimelineOptions{.device = device, .watch = &watch}, where);
        reduction_staging = gpu::detail::ArenaBuffer<std::uint8_t>(arena, staging.size(), communication.ref(), where);
    }

    /// Returns the stream of reductions: communication, if they have none of their own.
    gpu::TimelineRef reductions() noexcept { return reduction ? reduction->ref() : communication.ref(); }
    /// Returns whether verbs on `stream` run beside all others.
    bool runs_beside(const gpu::TimelineRef& stream) noexcept {
        return reduction && stream.native() == reduction->ref().native();
    }
    /// Returns the staging memory that verbs on that stream use in turn.
    std::span<std::byte> staging_of(const gpu::TimelineRef& stream) noexcept {
        return std::as_writable_bytes((runs_beside(stream) ? reduction_staging : staging).span());
    }

    /// Replaces the staging memory of the stream of reductions. @pre the stream is idle
    void grow_staging(std::size_t bytes, SourceLocation where) {
        gpu::detail::ArenaBuffer<std::uint8_t> grown(arena, bytes, communication.ref(), where);
        (reduction ? reduction_staging : staging) = std::move(grown);
    }

    /// Makes the host wait for all work on the streams.
    void synchronize(SourceLocation where) {
        compute.ref().synchronize(where);
        communication.ref().synchronize(where);
        reductions().synchronize(where);
        to_device.ref().synchronize(where);
        to_host.ref().synchronize(where);
        host_calls.ref().synchronize(where);
    }
    /// Returns whether any of their events has happened since the last call with this `seen`. For any thread.
    bool advanced(Connections::Progress& seen) noexcept {
        const bool computed = compute.ref().advanced(seen[0]);
        const bool communicated = communication.ref().advanced(seen[1]);
        const bool reduced = reduction && reduction->ref().advanced(seen[2]);
        const bool fetched = to_device.ref().advanced(seen[3]);
        const bool stored = to_host.ref().advanced(seen[5]);
        return host_calls.ref().advanced(seen[4]) || computed || communicated || reduced || fetched || stored;
    }

    /// Returns whether a stream still has work.
    bool busy() noexcept {
        const gpu::detail::RelaxedCapture relaxed;
        const auto is_busy = [](gpu::Timeline& each) {
            return cudaStreamQuery(each.ref().native()) == cudaErrorNotReady;
        };
        const bool result = is_busy(compute) || is_busy(communication) || is_busy(conversion) || is_busy(to_device) ||
                            is_busy(to_host) || is_busy(host_calls) || (reduction && is_busy(*reduction));
        static_cast<void>(cudaGetLastError());
        return result;
    }

    std::optional<gpu::Stream> own_compute;
    /// Of the greatest priority: a collective that starts late delays all its peers.
    std::optional<gpu::Stream> own_communication;
    /// Likewise, for reductions that run beside other verbs.
    std::optional<gpu::Stream> own_reduction;
    /// For sums that do not fit in the staging memory: see StagedPieces.
    gpu::Stream own_conversion{gpu::Priority::greatest};
    /// For what is offloaded to pinned memory: see Offload.
    gpu::Stream own_to_device;
    gpu::Stream own_to_host;
    gpu::Stream own_host_calls;
    gpu::Timeline compute;
    gpu::Timeline communication;
    gpu::Timeline conversion;
    gpu::Timeline to_device;
    gpu::Timeline to_host;
    gpu::Timeline host_calls;
    std::optional<gpu::Timeline> reduction;
    std::unique_ptr<gpu::detail::ChunkSource> chunks;
    gpu::detail::Arena arena;  ///< for verbs: the same pieces in the same order on every rank
    gpu::detail::DeviceChunks local_chunks;
    gpu::detail::Arena local_arena;  ///< for a rank's own kernels, never registered: what other ranks may lack
    gpu::detail::ArenaBuffer<std::uint8_t>
        staging;  ///< of the first chunk, so that NCCL knows it where it knows the chunks
    gpu::detail::ArenaBuffer<std::uint8_t> reduction_staging;
    gpu::detail::PinnedBuffer<std::byte> host_records;  ///< records that ranks exchange in a split

  private:
    static gpu::StreamRef stream(cudaStream_t given, std::optional<gpu::Stream>& own, gpu::Priority priority,
                                 SourceLocation where) {
        if (given != nullptr) { return gpu::StreamRef(given, where); }
        return own.emplace(priority, where).ref(where);
    }
};

}  // namespace shardkit::nccl::detail
