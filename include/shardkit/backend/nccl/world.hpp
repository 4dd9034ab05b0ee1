// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/arena_buffer.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/pinned_buffer.hpp>
#include <shardkit/backend/cuda/relaxed_capture.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/borrow.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/comparison.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/registered.hpp>
#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/backend/nccl/stall_watch.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/verb_order.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::nccl::detail {

/// The CUDA resources of a World: streams and memory, all made at once on the current device.
struct Resources {
    /// The smallest staging memory per rank, so that pieces are aligned.
    static constexpr std::size_t staging_bytes_per_rank = 1024;
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
          copies(own_copies.ref(where),
                 {.events = copy_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          host_calls(own_host_calls.ref(where),
                     {.events = copy_events, .scratch_bytes = 0, .device = device, .watch = &watch}, where),
          chunks(options.registration == Registration::none
                     ? std::unique_ptr<gpu::detail::ChunkSource>(new gpu::detail::DeviceChunks(device))
                     : std::make_unique<NcclChunks>(device)),
          arena(*chunks, options.arena_chunk_bytes, where),
          local_chunks(device),
          local_arena(local_chunks, std::min(options.arena_chunk_bytes, local_chunk_bytes), where),
          staging(arena, std::max(options.staging_bytes, ranks * staging_bytes_per_rank), communication.ref(), where),
          host_records(ranks * record_bytes, where) {
        if (!options.separate_reductions || options.split_share || ranks == 1) { return; }
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

    /// Makes the host wait for all work on the streams.
    void synchronize(SourceLocation where) {
        compute.ref().synchronize(where);
        communication.ref().synchronize(where);
        reductions().synchronize(where);
        copies.ref().synchronize(where);
        host_calls.ref().synchronize(where);
    }
    /// Returns whether any of their events has happened since the last call with this `seen`. For any thread.
    bool advanced(Connections::Progress& seen) noexcept {
        const bool computed = compute.ref().advanced(seen[0]);
        const bool communicated = communication.ref().advanced(seen[1]);
        const bool reduced = reduction && reduction->ref().advanced(seen[2]);
        const bool copied = copies.ref().advanced(seen[3]);
        return host_calls.ref().advanced(seen[4]) || computed || communicated || reduced || copied;
    }

    /// Returns whether a stream still has work.
    bool busy() noexcept {
        const gpu::detail::RelaxedCapture relaxed;
        const auto is_busy = [](gpu::Timeline& each) {
            return cudaStreamQuery(each.ref().native()) == cudaErrorNotReady;
        };
        const bool result = is_busy(compute) || is_busy(communication) || is_busy(conversion) || is_busy(copies) ||
                            is_busy(host_calls) || (reduction && is_busy(*reduction));
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
    gpu::Stream own_copies;
    gpu::Stream own_host_calls;
    gpu::Timeline compute;
    gpu::Timeline communication;
    gpu::Timeline conversion;
    gpu::Timeline copies;
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

namespace shardkit::nccl {

/// Owns everything that the communicators of one rank share: NCCL's handles, streams, memory and the journal. It must
/// outlive them, and all containers made over them. For one GPU and one rank, used by one thread. The GPU stays
/// selected in a thread that had selected none. Failures: a call that fails, a rank that is gone, or a peer that does
/// not come within Options::timeout is a CommError. The World then aborts all communicators it made, so that the
/// GPU's work ends and its peers notice, and every later verb throws; the World can only be destroyed. A borrowed
/// communicator is never aborted.
class World final : public detail::Connections {
  public:
    /// Connects `ranks` ranks; this one is number `rank`. Collective: all ranks must give the same id.
    /// @throws CommError when a call fails, a rank does not come within the timeout, or NCCL is too old;
    ///         std::invalid_argument for a rank that is not below `ranks`, or a default stream; gpu::Error
    World(const UniqueId& id, std::size_t ranks, std::size_t rank, const Options& options = {},
          SourceLocation where = SourceLocation::current())
        : World(options, ranks, rank, where) {
        connect(id, rank, where);
    }
    /// Connects the processes of a launcher's job, on the launcher's GPU unless the options name another one.
    explicit World(const Launcher& launcher, const Options& options = {},
                   SourceLocation where = SourceLocation::current())
        : World(on_device(options, launcher.device()), launcher.world_size(), launcher.rank(), where) {
        connect(launcher.unique_id(options.timeout, where), launcher.rank(), where);
    }
    /// Works on a communicator of the user, with its ranks. Local.
    /// @throws std::invalid_argument when it is on another GPU than the options say
    explicit World(Borrow borrowed, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : World(options, detail::place_of(borrowed.comm, making, where), where) {
        borrow(borrowed, "world", where);
    }
    /// Shrinks a World to the remaining ranks, in their order: after a failure, if it was survivable, or before one,
    /// to remove ranks. Collective: all remaining ranks must give the same list. The old World runs no more verbs;
    /// until it ends its containers keep their memory, from which a rank may copy its values. The new World has
    /// memory and streams of its own, on the same GPU.
    /// @throws std::invalid_argument for a wrong list of ranks, or a World over a communicator of the user; CommError
    ///         when NCCL is older than 2.27.3, the old World failed without being survivable, or a remaining rank
    ///         does not come within its timeout
    explicit World(const Survivors& survivors, const Options& options = {},
                   SourceLocation where = SourceLocation::current())
        : World(on_device(options, survivors.world.device()), place_among(survivors, where), where) {
        const gpu::detail::DeviceGuard guard(device_, where);
        shrink_from(survivors.world, survivors.lost, detail::config_of(options_), where);
        welcome(world_group(), where);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    /// Finishes, if `finish` was not called. When an exception leaves the scope, after a failure, and in another
    /// thread than its own, it aborts instead. It ends within the timeout. If work of a borrowed communicator hangs,
    /// or a CUDA graph with verbs still exists, memory and streams are left behind: freeing them would wait forever.
    /// A static World that exit() ends makes no calls and does not wait.
    ~World() {
        const bool sound = !finished() && !failed() && !scope().unwinds();
        if (sound && scope().ends()) {
            try {
                finish();
            } catch (const std::exception& error) { say(error.what()); }
        } else if (sound) {
            say("it did not finish(): ended by exit() perhaps, or by another thread than its own");
        }
        stall_watch_.reset();
        const bool exits = !finished() && scope().exits();
        if (!finished() && !exits) { abort(); }
        const bool borrows = std::ranges::any_of(
            groups(), [](const detail::Group& group) { return group.owner == detail::Group::Owner::user; });
        bool stays = exits || !aborts_over() || (borrows && !finished() && resources_->busy());
        try {
            if (!stays) { deregister(false, SourceLocation::current()); }
        } catch (const std::exception&) { stays = true; }
        if (stays) { leave_behind(); }
    }

    /// Ends the World, as its last call: waits for all streams, then ends and destroys the communicators that this
    /// World made. All remaining ranks must call it. CUDA graphs with verbs must be destroyed before.
    /// @throws CommError when that fails or takes longer than the timeout
    void finish(SourceLocation where = SourceLocation::current()) {
        if (finished()) { return; }
        require_usable("finish", where);
        const gpu::detail::DeviceGuard guard(device_, where);
        resources_->synchronize(where);
        stall_watch_.reset();
        close(where);
    }

    int device() const noexcept { return device_; }
    const Options& options() const noexcept { return options_; }
    /// Returns the streams for a Rank.
    Streams<gpu::TimelineRef> streams() noexcept {
        return {resources_->compute.ref(), resources_->communication.ref(), resources_->reductions()};
    }

    /// Allocates zeroed device memory out of the World's chunks.
    template <Element T>
    gpu::detail::ArenaBuffer<T> buffer(std::size_t size, SourceLocation where = SourceLocation::current()) {
        gpu::detail::ArenaBuffer<T> result(resources_->arena, size, resources_->compute.ref(), where);
        register_memory(where);
        return result;
    }
    /// Allocates likewise, but out of chunks that NCCL never sees: for memory whose size depends on the rank.
    template <Element T>
    gpu::detail::ArenaBuffer<T> local_buffer(std::size_t size, SourceLocation where = SourceLocation::current()) {
        return {resources_->local_arena, size, resources_->compute.ref(), where};
    }
    /// Allocates zeroed pinned memory of the host.
    template <Element T>
    gpu::detail::PinnedBuffer<T> host_buffer(std::size_t size, SourceLocation where = SourceLocation::current()) {
        const gpu::detail::DeviceGuard guard(device_, where);
        return gpu::detail::PinnedBuffer<T>(size, where);
    }
    /// Returns the stream of copies between pinned memory and the GPU's, which runs beside the other streams.
    gpu::TimelineRef copy_stream() const noexcept { return resources_->copies.ref(); }
    /// Returns the stream of functions of the host, which runs beside the other streams.
    gpu::TimelineRef host_stream() const noexcept { return resources_->host_calls.ref(); }
    /// Checks that memory is on this World's GPU.
    /// @throws std::invalid_argument unless it is memory of this World's GPU
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        gpu::detail::require_device_memory(data, bytes, device_, what, where);
    }

    /// Returns whether verbs on that stream run beside all others.
    bool runs_beside(const gpu::TimelineRef& stream) const noexcept { return resources_->runs_beside(stream); }
    /// Returns scratch memory of the device for verbs on that stream, used in the order in which they are given.
    std::span<std::byte> staging(const gpu::TimelineRef& stream) const noexcept {
        return resources_->staging_of(stream);
    }
    /// Returns the stream in which a verb converts staged elements while NCCL moves others; used in the same order.
    gpu::TimelineRef conversions() const noexcept { return resources_->conversion.ref(); }
    /// Returns pinned memory, detail::Resources::record_bytes for every rank of the World.
    std::span<std::byte> host_records() const noexcept { return resources_->host_records.span(); }

    /// Enters a verb, as its first action; the verb ends with the returned turn. Verbs are launched in the order in
    /// which this rank gives them, as communicators that ran in different orders on different ranks would wait for
    /// each other. Each verb runs after the previous one, whatever their streams, except that reductions run beside
    /// the others.
    [[nodiscard]] detail::VerbOrder::Turn enter(const detail::Call& call, const gpu::TimelineRef& stream) {
        act();
        if (failed() || finished()) { require_usable(call.doing(), call.where); }
        order_.wait_for_room(streams(), call.where);
        return order_.next(stream, runs_beside(stream));
    }
    /// Counts the launch of a CUDA graph with verbs as a verb on `stream`, for a loop that never waits otherwise: see
    /// Options::verbs_ahead.
    /// @throws CommError when a peer is gone
    void keep_pace(const gpu::TimelineRef& stream, SourceLocation where = SourceLocation::current()) {
        act();
        require_usable("keep_pace", where);
        order_.mark(stream, runs_beside(stream));
        order_.wait_for_room(streams(), where);
    }

    /// Records a collective over `group`, with the counts of an uneven one, and compares it with those of its peers
    /// if the options say each call.
    /// @throws CommError, on every rank of the group, when they disagree
    void note(detail::Group& group, const shardkit::Call& call, const shardkit::detail::UnevenCounts& counts,
              const gpu::TimelineRef& stream) {
        group.trace->add(call);
        if (call.signature.verb == Verb::all_to_all_uneven) { group.trace->add_counts(group.rank, counts); }
        if (options_.compare_calls == CompareCalls::each_call && stream.capture() == 0) {
            compare(group, call.where);
        }
    }
    /// Compares all calls over `group`; not while a stream of the World is captured.
    /// @throws CommError, on every rank of the group, when they disagree
    void compare(const detail::Group& group, SourceLocation where) {
        if (!group.trace || detail::captures(streams())) { return; }
        const gpu::detail::DeviceGuard guard(device_, where);
        comparison_->require_agreement(*this, group, where);
    }

    /// Adds a communicator of the user.
    /// @throws std::invalid_argument when it is on another GPU or has more ranks than the World; CommError
    detail::Group& borrow(Borrow borrowed, std::string_view axes, SourceLocation where) {
        detail::require_fits(detail::place_of(borrowed.comm, making, where), device_, ranks_, axes, where);
        for (detail::Group& known : groups()) {
            if (known.comm == borrowed.comm) { return known; }
        }
        ncclResult_t state = ncclSuccess;
        detail::check(ncclCommGetAsyncError(borrowed.comm, &state), "ncclCommGetAsyncError", "borrow", where);
        detail::check(state, "a borrowed communicator's earlier call", "borrow", where, borrowed.comm);
        detail::Group& group = add_group(axes);
        {
            const Lock lock = calls("borrow", where);
            group.owner = detail::Group::Owner::user;
            group.comm = borrowed.comm;
        }
        welcome(group, where);
        return group;
    }
    /// Sets up a new communicator: this rank's place in it, registered memory, and the comparison of calls.
    void welcome(detail::Group& group, SourceLocation where) {
        {
            const Lock lock = calls(making, where);
            const detail::RankPlace place = detail::place_of(group.comm, making, where);
            group.rank = place.rank;
            group.size = place.size;
        }
        register_memory(where);
        prepare_comparison(group, where);
    }

    /// Registers new memory with all communicators, as Options::registration says.
    void register_memory(SourceLocation where) {
        register_chunks(resources_->arena.chunks(), options_.registration, where);
    }

  private:
    static constexpr const char* making = "World";

    World(const Options& options, std::size_t ranks, std::size_t rank, SourceLocation where)
        : detail::Connections(options.timeout, options.survivable,
                              gpu::detail::device_or_current(options.device, where)),
          options_(options),
          device_(gpu::detail::device_or_current(options.device, where)),
          ranks_(ranks),
          order_(options.verbs_ahead, where) {
        if (ranks == 0 || ranks > std::numeric_limits<int>::max() || rank >= ranks) {
            throw_invalid_argument(where, "nccl::World: rank ", rank, " of ", ranks,
                                   " ranks, expected a rank below the number of ranks");
        }
        detail::require_possible(options_, making, where);
        const gpu::detail::DeviceGuard guard(device_, where);
        resources_ = std::make_unique<detail::Resources>(options_, device_, ranks, watch(), where);
        if (ranks == 1) { return; }
        stall_watch_.emplace(
            device_, options_.timeout, acts(),
            [this, seen = Progress{}]() mutable { return order_.is_behind() && !progressed(seen); },
            [this](std::uint64_t acted) { return end_stalled(acted); });
    }
    World(const Options& options, const detail::RankPlace& place, SourceLocation where)
        : World(options, place.size, place.rank, where) {}
    static Options on_device(Options options, int device) {
        if (options.device < 0) { options.device = device; }
        return options;
    }

    void connect(const UniqueId& id, std::size_t rank, SourceLocation where) {
        const gpu::detail::DeviceGuard guard(device_, where);
        ncclConfig_t config = detail::config_of(options_);
        detail::Group& group = add_group("world");
        const ncclResult_t code = [&] {
            const Lock lock = calls(making, where);
            return ncclCommInitRankConfig(&group.comm, static_cast<int>(ranks_), id.native(), static_cast<int>(rank),
                                          &config);
        }();
        if (code != ncclSuccess && code != ncclInProgress) {
            fail(making, detail::describe(code, "ncclCommInitRankConfig"), where);
        }
        await(group, "ncclCommInitRankConfig", making, where);
        welcome(group, where);
    }

    static void say(const char* what) { std::fprintf(stderr, "shardkit: the end of an nccl::World: %s\n", what); }
    /// Leaves memory behind, as freeing it would wait for work on the GPU.
    void leave_behind() noexcept {
        static_cast<void>(resources_.release());
        static_cast<void>(comparison_.release());
    }

    bool progressed(Progress& seen) noexcept override { return resources_ && resources_->advanced(seen); }

    void prepare_comparison(detail::Group& group, SourceLocation where) {
        if (options_.compare_calls == CompareCalls::off || group.size == 1) { return; }
        if (!comparison_) { comparison_ = std::make_unique<detail::Comparison>(ranks_, device_, watch(), where); }
        detail::Comparison::prepare(*this, group, detail::config_of(options_), where);
    }

    /// Returns this rank's place among the survivors.
    static detail::RankPlace place_among(const Survivors& survivors, SourceLocation where) {
        World& world = survivors.world;
        if (world.groups().empty() || world.world_group().owner != detail::Group::Owner::world) {
            throw_invalid_argument(where,
                                   "nccl::Survivors: the World is over a communicator of the user's, expected "
                                   "one of its own; shrink that and lend what comes out");
        }
        const detail::Group& from = world.world_group();
        const std::size_t rank = survivors.place_of(from.rank, from.size, where);
        detail::require_version(windows_version, "Survivors", where);
        if (!world.failed()) { world.resources_->synchronize(where); }  // NCCL requires it to be idle
        return {rank, from.size - survivors.lost.size(), world.device()};
    }

    Options options_;
    int device_;
    std::size_t ranks_;
    detail::VerbOrder order_;
    std::unique_ptr<detail::Resources> resources_;
    std::unique_ptr<detail::Comparison> comparison_;
    std::optional<detail::StallWatch> stall_watch_;  // ends first, as it uses the others; none where there is no peer
};

}  // namespace shardkit::nccl
