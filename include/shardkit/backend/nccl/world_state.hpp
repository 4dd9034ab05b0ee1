// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/memory_kind.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/device/launches.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/comparison.hpp>
#include <shardkit/backend/nccl/connect_again.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/lane_order.hpp>
#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/resources.hpp>
#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/backend/nccl/stall_watch.hpp>
#include <shardkit/backend/nccl/try_sum.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/verb_order.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/recorder/record_files.hpp>

namespace shardkit::nccl::detail {

/// What a World owns: NCCL's handles, streams, memory and the journal.
class WorldState final : public Connections {
  public:
    WorldState(const UniqueId& id, std::size_t ranks, std::size_t rank, const Options& options, SourceLocation where)
        : WorldState(options, ranks, rank, where) {
        connect(id, rank, where);
    }
    WorldState(const Launcher& launcher, const Options& options, SourceLocation where)
        : WorldState(on_device(options, launcher.device()), launcher.world_size(), launcher.rank(), where) {
        connect(launcher.unique_id(options.timeout, where), launcher.rank(), where);
    }
    WorldState(ncclComm_t users, const Options& options, SourceLocation where)
        : WorldState(options, place_of(users, making, where), where) {
        borrow(users, "world", where);
    }
    /// Shrinks `old` to the ranks that are not lost.
    WorldState(WorldState& old, std::span<const std::size_t> lost, const Options& options, SourceLocation where)
        : WorldState(on_device(options, old.device()), place_among(old, lost, where), where) {
        const gpu::detail::DeviceGuard guard(device_, where);
        shrink_from(old, lost, config_of(options_), where);
        welcome(world_group(), where);
    }
    ~WorldState() {
        const bool sound = !finished() && !failed() && !ended_by().unwinds();
        if (sound && ended_by().ends()) {
            try {
                finish(SourceLocation::current());
            } catch (const std::exception& error) { say(error.what()); }
        } else if (sound) {
            say("it did not finish(): ended by exit() perhaps, or by another thread than its own");
        }
        if (records_ && ended_by().unwinds()) { records_->tell("an exception has ended its World", true); }
        end_watches();
        const bool exits = !finished() && ended_by().exits();
        if (exits) {
            leave_behind();
            return;
        }
        const gpu::detail::DeviceGuard guard(device_, std::nothrow);  // perhaps in a thread that has selected none
        if (!finished()) { abort(); }
        const bool borrows =
            std::ranges::any_of(groups(), [](const Group& group) { return group.owner == Group::Owner::user; });
        bool stays = !aborts_over() || (borrows && !finished() && resources_->busy());
        try {
            if (!stays) { deregister(false, SourceLocation::current()); }
        } catch (const std::exception&) { stays = true; }
        if (stays) { leave_behind(); }
        comparison_.reset();
        resources_.reset();
    }

    void finish(SourceLocation where) {
        if (finished()) { return; }
        require_usable("finish", where);
        const gpu::detail::DeviceGuard guard(device_, where);
        records_->returned();
        resources_->synchronize(where);
        stall_watch_.reset();
        close(where);
    }

    int device() const noexcept { return device_; }
    const Options& options() const noexcept { return options_; }
    engine::Traits traits() const noexcept { return traits_of(options_, ranks_); }
    /// Returns the streams for a Rank.
    Streams streams() noexcept {
        return {resources_->compute.ref(), resources_->communication.ref(), resources_->reductions()};
    }

    /// Allocates zeroed device memory out of the World's chunks.
    gpu::detail::OwnedBytes buffer(std::size_t bytes, SourceLocation where = SourceLocation::current()) {
        auto result = gpu::detail::arena_bytes(resources_->arena, bytes, resources_->compute.ref(), where);
        register_memory(where);
        return result;
    }
    /// Allocates likewise, but out of chunks that NCCL never sees: for memory whose size depends on the rank. Small
    /// buffers share chunks, and each other one has its own.
    gpu::detail::OwnedBytes local_buffer(std::size_t bytes, SourceLocation where = SourceLocation::current()) {
        const bool small = bytes < small_buffer_bytes;
        return gpu::detail::arena_bytes(small ? resources_->tables : resources_->local_buffers, bytes,
                                        resources_->compute.ref(), where);
    }
    /// Allocates zeroed pinned memory of the host.
    gpu::detail::OwnedBytes host_buffer(std::size_t bytes, SourceLocation where = SourceLocation::current()) {
        const gpu::detail::DeviceGuard guard(device_, where);
        return gpu::detail::pinned_bytes(bytes, where);
    }
    /// Returns the stream of copies between pinned memory and the GPU's that go one way, beside the other streams.
    gpu::TimelineRef copy_stream(engine::LinkWay way) const noexcept {
        return (way == engine::LinkWay::to_device ? resources_->to_device : resources_->to_host).ref();
    }
    /// Returns the stream of functions of the host, which runs beside the other streams.
    gpu::TimelineRef host_stream() const noexcept { return resources_->host_calls.ref(); }
    /// Checks that memory is on this World's GPU.
    /// @throws std::invalid_argument unless it is memory of this World's GPU
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        gpu::detail::require_device_memory(data, bytes, device_, what, where);
    }

    std::size_t most_bytes() const noexcept { return resources_->most_used_bytes() + traits().own_bytes; }
    std::optional<ByteCount> communicator_memory(SourceLocation where) {
        constexpr std::string_view doing = "communicator_memory";
        require_usable(doing, where);
        std::uint64_t all = 0;
        for (const Group& group : groups()) {
            if (group.comm == nullptr) { continue; }
            std::uint64_t bytes = 0;
            const Lock lock = calls(doing, where);
            const ncclResult_t code = memory_of(group.comm, bytes);
            if (code == ncclInvalidUsage) { return std::nullopt; }
            check(code, "ncclCommMemStats", doing, where, group.comm);
            all = options_.split_share ? std::max(all, bytes) : all + bytes;
        }
        return ByteCount{all};
    }

    /// Returns the event of the last gather's start, for CallOptions::resident_gathers; null without it.
    cudaEvent_t gather_started() const noexcept {
        return resources_->gather_started ? resources_->gather_started->native() : nullptr;
    }

    /// Returns whether verbs on that stream run beside all others.
    bool runs_beside(const gpu::TimelineRef& stream) const noexcept { return resources_->runs_beside(stream); }
    /// Returns scratch memory of the device for verbs on that stream, used in the order in which they are given.
    std::span<std::byte> staging(const gpu::TimelineRef& stream) const noexcept {
        return resources_->staging_of(stream);
    }
    /// Lets the staging memory of the stream of reductions grow to `bytes`, at most Options::most_staging_bytes. All
    /// ranks must give the same bytes. The host waits for all streams where it grows.
    /// @throws gpu::OutOfMemory; CommError
    void reserve_staging(std::size_t bytes, SourceLocation where) {
        const std::size_t wanted = std::min(bytes, most_staging(options_, ranks_));
        if (ranks_ == 1 || wanted <= staging(resources_->reductions()).size()) { return; }
        require_usable("the staging memory", where);
        const gpu::detail::DeviceGuard guard(device_, where);
        resources_->synchronize(where);  // verbs on any of them use it where reductions have no stream of their own
        resources_->grow_staging(wanted, where);
        register_memory(where);
    }
    /// Returns the stream in which a verb converts staged elements while NCCL moves others; used in the same order.
    gpu::TimelineRef conversions() const noexcept { return resources_->conversion.ref(); }
    /// Returns pinned memory, Resources::record_bytes for every rank of the World.
    std::span<std::byte> host_records() const noexcept { return resources_->host_records.span(); }

    /// Enters a verb, as its first action; the verb ends with the returned turn. Verbs are launched in the order in
    /// which this rank gives them, as communicators that ran in different orders on different ranks would wait for
    /// each other. Each verb runs after the previous one, whatever their streams, except that reductions run beside
    /// the others.
    [[nodiscard]] VerbOrder::Turn enter(const Call& call) {
        act();
        if (failed() || finished()) { require_usable(call.doing(), call.where); }
        order_.wait_for_room(streams(), call.where);
        return order_.next(call.stream, runs_beside(call.stream));
    }
    void keep_pace(const Stream& given, SourceLocation where) {
        act();
        require_usable("keep_pace", where);
        const gpu::TimelineRef stream(given, where);
        order_.mark(stream, runs_beside(stream));
        order_.wait_for_room(streams(), where);
    }

    /// Records a collective over `group`, with the counts of an uneven one, and compares it with those of its peers
    /// if the options say each call.
    /// @throws CommError, on every rank of the group, when they disagree
    void note(Group& group, const shardkit::Call& call, const shardkit::detail::UnevenCounts& counts,
              const gpu::TimelineRef& stream) {
        group.trace->add(call);
        if (call.signature.verb == Verb::all_to_all_uneven) { group.trace->add_counts(group.rank, counts); }
        if (options_.compare_calls == CompareCalls::each_call && stream.capture() == 0) {
            compare(group, call.where);
        }
    }
    /// Compares all calls over `group`; not while a stream of the World is captured.
    /// @throws CommError, on every rank of the group, when they disagree
    void compare(const Group& group, SourceLocation where) {
        if (!group.trace || captures(streams())) { return; }
        const gpu::detail::DeviceGuard guard(device_, where);
        comparison_->require_agreement(*this, group, where);
    }

    /// Adds a communicator of the user.
    /// @throws std::invalid_argument when it is on another GPU or has more ranks than the World; CommError
    Group& borrow(ncclComm_t comm, std::string_view axes, SourceLocation where) {
        require_fits(place_of(comm, making, where), device_, ranks_, axes, where);
        for (Group& known : groups()) {
            if (known.comm == comm) { return known; }
        }
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", "borrow", where);
        check(state, "a borrowed communicator's earlier call", "borrow", where, comm);
        Group& group = add_group(axes);
        {
            const Lock lock = calls("borrow", where);
            group.owner = Group::Owner::user;
            group.comm = comm;
        }
        welcome(group, where);
        return group;
    }
    /// Sets up a new communicator: this rank's place in it, registered memory, and the comparison of calls.
    void welcome(Group& group, SourceLocation where) {
        {
            const Lock lock = calls(making, where);
            const RankPlace place = place_of(group.comm, making, where);
            group.rank = place.rank;
            group.size = place.size;
        }
        register_memory(where);
        prepare_comparison(group, where);
        prepare_sums(group, where);
    }

    /// Returns whether memory lies in a chunk that is registered, if Options::registration says so.
    bool in_chunks(const void* data, std::size_t bytes) const noexcept {
        const auto begin = reinterpret_cast<std::uintptr_t>(data);
        return std::ranges::any_of(resources_->arena.chunks(), [&](const gpu::detail::Arena::Chunk& chunk) {
            const auto first = reinterpret_cast<std::uintptr_t>(chunk.data);
            return begin >= first && begin + bytes <= first + chunk.bytes;
        });
    }
    /// Registers new memory with all communicators, as Options::registration says.
    void register_memory(SourceLocation where) {
        register_chunks(resources_->arena.chunks(), options_.registration, where);
    }

  private:
    static constexpr const char* making = "World";

    WorldState(const Options& options, std::size_t ranks, std::size_t rank, SourceLocation where)
        : Connections(options, gpu::detail::device_or_current(options.device, where)),
          options_(options),
          device_(gpu::detail::device_or_current(options.device, where)),
          ranks_(ranks),
          order_(options.verbs_ahead, journal().recorder(), over(), where) {
        if (ranks == 0 || ranks > std::numeric_limits<int>::max() || rank >= ranks) {
            throw_invalid_argument(where, "nccl::World: rank ", rank, " of ", ranks,
                                   " ranks, expected a rank below the number of ranks");
        }
        order_launches();
        require_possible(options_, making, where);
        const gpu::detail::DeviceGuard guard(device_, where);
        options_ = with_room_for_two(options_, device_, ranks, where);
        resources_ = std::make_unique<Resources>(options_, device_, ranks, watch(), where);
        // What the host has not waited for may be over by now.
        records_.emplace("nccl", options_.record, rank, ranks, journal(), [this] {
            const gpu::detail::DeviceGuard looks(device_);  // in a thread that has selected none
            static_cast<void>(order_.is_behind());
        });
        records_->set_run(0);  // not known, unless there is an id
        set_records(&*records_);
        if (ranks == 1) { return; }
        stall_watch_.emplace(
            device_, [this] { return limit(); }, acts(),
            [this, seen = Progress{}]() mutable { return order_.is_behind() && !progressed(seen); },
            [this](std::uint64_t acted) { return end_stalled(acted); });
    }
    WorldState(const Options& options, const RankPlace& place, SourceLocation where)
        : WorldState(options, place.size, place.rank, where) {}
    static Options on_device(Options options, int device) {
        if (options.device < 0) { options.device = device; }
        return options;
    }

    void connect(const UniqueId& id, std::size_t rank, SourceLocation where) {
        const gpu::detail::DeviceGuard guard(device_, where);
        shardkit::detail::Fnv run;
        const ncclUniqueId native_id = nccl::native(id);
        run.add(std::string_view(native_id.internal, sizeof native_id));
        records_->set_run(run.hash);
        ncclConfig_t config = config_of(options_);
        Group& group = add_group("world");
        const ncclResult_t code = [&] {
            const Lock lock = calls(making, where);
            return ncclCommInitRankConfig(&group.comm, static_cast<int>(ranks_), native_id, static_cast<int>(rank),
                                          &config);
        }();
        if (code != ncclSuccess && code != ncclInProgress) {
            fail(making, describe(code, "ncclCommInitRankConfig"), where);
        }
        await(group, "ncclCommInitRankConfig", making, where);
        welcome(group, where);
    }

    /// Ends the threads that look at this World.
    void end_watches() noexcept {
        stall_watch_.reset();
        set_records(nullptr);
        records_.reset();
    }
    static void say(const char* what) { std::fprintf(stderr, "shardkit: the end of an nccl::World: %s\n", what); }
    /// Leaves memory behind, as freeing it would wait for work on the GPU.
    void leave_behind() noexcept {
        static_cast<void>(resources_.release());
        static_cast<void>(comparison_.release());
    }

    bool progressed(Progress& seen) noexcept override { return resources_ && resources_->advanced(seen); }

    void prepare_comparison(Group& group, SourceLocation where) {
        if (options_.compare_calls == CompareCalls::off || group.size == 1) { return; }
        if (!comparison_) { comparison_ = std::make_unique<Comparison>(ranks_, device_, watch(), where); }
        ncclConfig_t config = config_of(options_);
        if (!options_.split_share) {
            config.minCTAs = config.maxCTAs = 1;
        }  // records of some bytes, beside the verbs
        Comparison::prepare(*this, group, config, where);
    }

    /// Lets NCCL add 16-bit elements of these ranks, if the options ask for it and NCCL does.
    void prepare_sums(Group& group, SourceLocation where) {
        if (options_.sums != Sums::by_nccl || group.size == 1) { return; }
        Group& sums = connect_again(*this, group, group.made_as, config_of(options_), making_sums, where);
        register_memory(where);
        const gpu::TimelineRef stream(streams().communication, where);
        const std::string refusal =
            try_sum(*this, group, sums, {host_records(), staging(stream), stream, conversions()}, where);
        if (refusal.empty()) {
            group.sums = &sums;
        } else if (group.rank == 0 && !std::exchange(told_of_sums_, true)) {
            std::fprintf(stderr, "shardkit: nccl: sums of 16-bit elements over %s travel as fp32: %s\n",
                         group.made_as.c_str(), refusal.c_str());
        }
    }

    /// Returns this rank's place among the survivors.
    static RankPlace place_among(WorldState& old, std::span<const std::size_t> lost, SourceLocation where) {
        if (old.groups().empty() || old.world_group().owner != Group::Owner::world) {
            throw_invalid_argument(where,
                                   "nccl::Survivors: the World is over a communicator of the user's, expected "
                                   "one of its own; shrink that and lend what comes out");
        }
        const Group& from = old.world_group();
        const std::size_t rank = detail::place_among(lost, from.rank, from.size, where);
        require_version(windows_version, "Survivors", where);
        if (!old.failed()) { old.resources_->synchronize(where); }  // NCCL requires it to be idle
        return {rank, from.size - lost.size(), old.device()};
    }

    Options options_;
    int device_;
    std::size_t ranks_;
    VerbOrder order_;
    std::unique_ptr<Resources> resources_;
    std::unique_ptr<Comparison> comparison_;
    std::optional<shardkit::detail::RecordWriter> records_;
    bool told_of_sums_ = false;
    std::optional<StallWatch> stall_watch_;  // ends first, as it uses the others; none where there is no peer
};

}  // namespace shardkit::nccl::detail
