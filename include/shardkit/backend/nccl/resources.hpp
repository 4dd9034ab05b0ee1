// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/registered.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl::detail {

/// A timeline and its stream, which is the user's or made here.
struct OwnTimeline {
    OwnTimeline(cudaStream_t given, gpu::Priority priority, const gpu::TimelineOptions& options, SourceLocation where)
        : timeline(given != nullptr ? gpu::StreamRef(given, where) : own.emplace(priority, where).ref(where), options,
                   where) {}
    gpu::TimelineRef ref() noexcept { return timeline.ref(); }

    std::optional<gpu::Stream> own;
    gpu::Timeline timeline;
};

/// The CUDA resources of a World: streams and memory, all made at once on the current device.
struct Resources {
    /// The largest record that a rank sends to the others at a time, when they split.
    static constexpr std::size_t record_bytes = sizeof(shared::detail::GroupNumbers);
    /// Each event is waited for as soon as it is recorded.
    static constexpr std::size_t conversion_events = 1;
    /// A fetch is waited for once the next one is given.
    static constexpr std::size_t copy_events = 4;

    Resources(const Options& options, int device, std::size_t ranks, gpu::Watch& watch, SourceLocation where)
        : compute(options.compute, gpu::Priority::usual, {.device = device, .watch = &watch}, where),
          communication(options.communication, gpu::Priority::greatest, {.device = device, .watch = &watch}, where),
          conversion(nullptr, gpu::Priority::greatest, few_events(conversion_events, device, watch), where),
          to_device(nullptr, gpu::Priority::usual, few_events(copy_events, device, watch), where),
          to_host(nullptr, gpu::Priority::usual, few_events(copy_events, device, watch), where),
          host_calls(nullptr, gpu::Priority::usual, few_events(copy_events, device, watch), where),
          chunks(options.registration == Registration::none
                     ? std::unique_ptr<gpu::detail::ChunkSource>(new gpu::detail::DeviceChunks(device))
                     : std::make_unique<NcclChunks>(device)),
          arena(*chunks, options.arena_chunk_bytes, where),
          local_chunks(device),
          tables(local_chunks, local_chunk_bytes, where),
          local_buffers(local_chunks, gpu::detail::Arena::granularity, where),
          staging(gpu::detail::arena_bytes(arena, staging_size(options, ranks), communication.ref(), where)),
          host_records(gpu::detail::pinned_bytes(ranks * record_bytes, where)) {
        if (options.each_call.resident_gathers) { gather_started.emplace(gpu::EventTime::none, where); }
        if (!separates_reductions(options, ranks)) { return; }
        reduction.emplace(nullptr, gpu::Priority::greatest, gpu::TimelineOptions{.device = device, .watch = &watch},
                          where);
        reduction_staging = gpu::detail::arena_bytes(arena, staging.size(), communication.ref(), where);
    }

    /// Returns the stream of reductions: communication, if they have none of their own.
    gpu::TimelineRef reductions() noexcept { return reduction ? reduction->ref() : communication.ref(); }
    /// Returns whether verbs on `stream` run beside all others.
    bool runs_beside(const gpu::TimelineRef& stream) noexcept {
        return reduction && stream.native() == reduction->ref().native();
    }
    /// Returns the staging memory that verbs on that stream use in turn.
    std::span<std::byte> staging_of(const gpu::TimelineRef& stream) noexcept {
        return (runs_beside(stream) ? reduction_staging : staging).span();
    }

    /// Returns the most of the GPU's memory that buffers have taken, but for small ones of the rank's own.
    std::size_t most_used_bytes() const noexcept { return arena.most_used_bytes() + local_buffers.most_used_bytes(); }
    /// Replaces the staging memory of the stream of reductions. @pre the streams are idle
    void grow_staging(std::size_t bytes, SourceLocation where) {
        (reduction ? reduction_staging : staging) =
            gpu::detail::arena_bytes(arena, bytes, communication.ref(), where);
    }

    /// Makes the host wait for all work on the streams.
    void synchronize(SourceLocation where) {
        for (OwnTimeline* const each : timelines()) { each->ref().synchronize(where); }
    }
    /// Returns whether any of their events has happened since the last call with this `seen`. For any thread.
    bool advanced(Connections::Progress& seen) noexcept {
        bool result = false;
        for (std::size_t i = 0; i < seen.size(); ++i) { result = timelines()[i]->ref().advanced(seen[i]) || result; }
        return result;
    }
    /// Returns whether a stream still has work.
    bool busy() noexcept {
        const gpu::detail::RelaxedCapture relaxed;
        const bool result = std::ranges::any_of(timelines(), [](OwnTimeline* each) {
            return cudaStreamQuery(each->ref().native()) == cudaErrorNotReady;
        });
        static_cast<void>(cudaGetLastError());
        return result;
    }

    OwnTimeline compute;
    /// Of the greatest priority: a collective that starts late delays all its peers.
    OwnTimeline communication;
    /// For sums that do not fit in the staging memory: see StagedPieces.
    OwnTimeline conversion;
    /// For what is offloaded to pinned memory: see Offload.
    OwnTimeline to_device;
    OwnTimeline to_host;
    OwnTimeline host_calls;
    /// Of the greatest priority too, for reductions that run beside other verbs.
    std::optional<OwnTimeline> reduction;
    /// Of the last gather's kernel, for CallOptions::resident_gathers.
    std::optional<gpu::Event> gather_started;
    std::unique_ptr<gpu::detail::ChunkSource> chunks;
    gpu::detail::Arena arena;  ///< for verbs: the same pieces in the same order on every rank
    gpu::detail::DeviceChunks local_chunks;
    // For a rank's own kernels, never registered: what other ranks may lack.
    gpu::detail::Arena tables;         ///< of buffers below small_buffer_bytes
    gpu::detail::Arena local_buffers;  ///< of others, each in a chunk of its own
    gpu::detail::OwnedBytes staging;   ///< of the first chunk, so that NCCL knows it where it knows the chunks
    gpu::detail::OwnedBytes reduction_staging;
    gpu::detail::OwnedBytes host_records;  ///< records that ranks exchange in a split

  private:
    static gpu::TimelineOptions few_events(std::size_t events, int device, gpu::Watch& watch) noexcept {
        return {.events = events, .scratch_bytes = 0, .device = device, .watch = &watch};
    }
    std::array<OwnTimeline*, std::tuple_size_v<Connections::Progress>> timelines() noexcept {
        return {&compute, &communication, reduction ? &*reduction : &communication, &to_device, &host_calls,
                &to_host, &conversion};
    }
};

}  // namespace shardkit::nccl::detail
