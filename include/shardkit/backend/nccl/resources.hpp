// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/nccl_chunks.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>

namespace shardkit::nccl::detail {

/// Holds what a World has of CUDA: streams and memory, all made at once on the current device.
struct Resources {
    /// Bounds the staging memory per rank from below: at least so much that pieces are aligned.
    static constexpr std::size_t staging_bytes_per_rank = 1024;
    /// Bounds what a rank tells the others at a time, when they split.
    static constexpr std::size_t record_bytes = sizeof(shared::detail::GroupNumbers);
    /// Counts the events of conversions; each is waited for as soon as it is recorded.
    static constexpr std::size_t conversion_events = 1;

    Resources(const Options& options, int device, std::size_t ranks, gpu::Watch& watch, SourceLocation where)
        : compute(stream(options.compute, own_compute, gpu::Priority::usual, where),
                  {.device = device, .watch = &watch}, where),
          communication(stream(options.communication, own_communication, gpu::Priority::greatest, where),
                        {.device = device, .watch = &watch}, where),
          conversion(own_conversion.ref(where),
                     {.events = conversion_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          chunks(options.registration == Registration::none
                     ? std::unique_ptr<gpu::detail::ChunkSource>(new gpu::detail::DeviceChunks(device))
                     : std::make_unique<NcclChunks>(device)),
          arena(*chunks, options.arena_chunk_bytes, where),
          staging(arena, std::max(options.staging_bytes, ranks * staging_bytes_per_rank), communication.ref(), where),
          host_records(ranks * record_bytes, where) {
        if (!options.separate_reductions || options.split_share || ranks == 1) { return; }
        own_reduction.emplace(gpu::Priority::greatest, where);
        reduction.emplace(own_reduction->ref(where), gpu::TimelineOptions{.device = device, .watch = &watch}, where);
        reduction_staging = gpu::detail::ArenaBuffer<std::uint8_t>(arena, staging.size(), communication.ref(), where);
    }

    /// Returns the stream of reductions: communication where those have none of their own.
    gpu::TimelineRef reductions() noexcept { return reduction ? reduction->ref() : communication.ref(); }
    /// Says whether verbs that are given to `stream` run beside all others.
    bool runs_beside(const gpu::TimelineRef& stream) noexcept {
        return reduction && stream.native() == reduction->ref().native();
    }
    /// Returns what the verbs of that stream take turns in.
    std::span<std::byte> staging_of(const gpu::TimelineRef& stream) noexcept {
        return std::as_writable_bytes((runs_beside(stream) ? reduction_staging : staging).span());
    }

    /// Lets the host wait for what verbs and the user gave to the streams.
    void synchronize(SourceLocation where) {
        compute.ref().synchronize(where);
        communication.ref().synchronize(where);
        reductions().synchronize(where);
    }
    /// Says whether any of their events has happened that had not when this was asked last.
    bool advanced() noexcept {
        const bool computed = compute.ref().advanced();
        const bool reduced = reduction && reduction->ref().advanced();
        return communication.ref().advanced() || computed || reduced;
    }

    /// Says whether work is still under way on one of the streams.
    bool busy() noexcept {
        const auto is_busy = [](gpu::Timeline& each) {
            return cudaStreamQuery(each.ref().native()) == cudaErrorNotReady;
        };
        const bool result =
            is_busy(compute) || is_busy(communication) || is_busy(conversion) || (reduction && is_busy(*reduction));
        static_cast<void>(cudaGetLastError());
        return result;
    }

    std::optional<gpu::Stream> own_compute;
    /// Has the greatest priority: a collective that starts late holds up all its peers.
    std::optional<gpu::Stream> own_communication;
    /// Has it too; it is the stream of reductions that run beside other verbs.
    std::optional<gpu::Stream> own_reduction;
    /// Converts for sums that do not fit into the staging memory: see StagedPieces.
    gpu::Stream own_conversion{gpu::Priority::greatest};
    gpu::Timeline compute;
    gpu::Timeline communication;
    gpu::Timeline conversion;
    std::optional<gpu::Timeline> reduction;
    std::unique_ptr<gpu::detail::ChunkSource> chunks;
    gpu::detail::Arena arena;
    gpu::detail::ArenaBuffer<std::uint8_t>
        staging;  ///< of the first chunk, so that NCCL knows it where it knows the chunks
    gpu::detail::ArenaBuffer<std::uint8_t> reduction_staging;
    gpu::detail::PinnedBuffer<std::byte> host_records;  ///< what ranks that split tell each other

  private:
    static gpu::StreamRef stream(cudaStream_t given, std::optional<gpu::Stream>& own, gpu::Priority priority,
                                 SourceLocation where) {
        if (given != nullptr) { return gpu::StreamRef(given, where); }
        return own.emplace(priority, where).ref(where);
    }
};

}  // namespace shardkit::nccl::detail
