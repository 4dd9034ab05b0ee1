// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/lane.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/returned_ranks.hpp>
#include <shardkit/backend/mpi/watch.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::mpi {

/// Names a communicator of the user to use without a duplicate: the user makes no calls on it while a World uses it.
struct Borrow {
    MPI_Comm comm;
};

/// Owns everything that the communicators of one rank share: MPI handles, staging memory, the journal and, with
/// overlap, the threads that make the MPI calls. It must outlive them. For one rank in one process, used by one
/// thread.
class World : shardkit::detail::NotCopied {
  public:
    /// Works on a duplicate of `comm`. Collective over it.
    /// @throws CommError when MPI is not initialised, was finalised, or has too low a thread level for the options,
    /// and
    ///         when not every rank comes within Options::timeout
    explicit World(MPI_Comm comm, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : World(comm, true, options, where) {}
    /// Works on the communicator itself; its error handler is MPI_ERRORS_RETURN until `finish`.
    explicit World(Borrow borrowed, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : World(borrowed.comm, false, options, where) {}
    /// Ends the job with MPI_Abort and a message if `finish` was not called and no exception is in flight, as when
    /// exit() destroys a static World: its peers would wait for this rank, and MPI_Finalize for them. After
    /// MPI_Finalize it does nothing.
    ~World() {
        int finalized = 0;
        if (finished_ || std::uncaught_exceptions() > exceptions_) { return; }
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized != 0) { return; }
        detail::end_job(world_group().rank, world_group().size(), "",
                        "an mpi::World ended without finish(), by exit() perhaps; the job ends");
    }

    /// Ends the World, as its last call: waits until every rank calls it, then frees MPI's resources of this World.
    /// Collective. A rank that fails must not call it but end its job with MPI_Abort, as mpi::run does.
    /// @throws PeerError when a rank does not come within Options::timeout, or its process has ended
    void finish(SourceLocation where = SourceLocation::current()) {
        records_->returned();
        execute(Stream(), where, [this, where](detail::Lane& lane) {
            lane.exchange_returns(own_call(lane, "finish", where), groups_);
            const detail::BlockingCall bounded("MPI_Comm_free", "finish", options().timeout, where);
            job_.returned.close(where);
            for (detail::Group& group : groups_) {
                for (detail::Channel& channel : group.channels) {
                    if (channel.owned) {
                        detail::check(MPI_Comm_free(&channel.comm), "MPI_Comm_free", "finish", where);
                    }
                }
            }
            if (users_handler_) {
                detail::check(MPI_Comm_set_errhandler(world_group().channels.front().comm, *users_handler_),
                              "MPI_Comm_set_errhandler", "finish", where);
            }
        });
        finished_ = true;
    }

    /// Writes this rank's record, if Options::record says where, because of the exception that is being handled.
    void record_exception() noexcept { records_->tell_exception(); }

    /// Returns the communicator over all ranks.
    Communicator communicator();

    detail::Group& world_group() noexcept { return groups_.front(); }
    const detail::Group& world_group() const noexcept { return groups_.front(); }
    /// Returns the journal of the verbs that are given to a stream; used by the rank's own thread.
    engine::Journal& journal() noexcept { return job_.journal; }
    /// Adds a group with the usual lane's channel, and makes the channels of the other lanes. Collective over it.
    detail::Group& add_group(detail::Group group, const detail::Call& call) {
        add_channels(group, call);
        return groups_.emplace_back(std::move(group));
    }
    /// Returns a number for a group whose first rank this one is.
    std::uint64_t next_number() const noexcept {
        return (world_group().rank + std::uint64_t{1}) << 32U | groups_.size();
    }
    /// Returns whether there is a group that no communicator of this rank uses any more.
    bool has_idle() const noexcept {
        return std::any_of(groups_.begin() + 1, groups_.end(),
                           [](const detail::Group& group) { return group.handles.none(); });
    }
    /// Returns the latest groups of these ranks, in this order, that no communicator of this rank uses any more. The
    /// world's own group is never among them.
    shared::detail::GroupNumbers idle_groups(const std::vector<std::size_t>& world_ranks) const noexcept {
        return shared::detail::latest_idle(groups_, [&](const detail::Group& group) {
            return group.handles.none() && &group != &world_group() && group.world_ranks == world_ranks;
        });
    }
    detail::Group& group_of(std::uint64_t number) noexcept {
        return *std::find_if(groups_.begin(), groups_.end(),
                             [&](const auto& group) { return group.number == number; });
    }

    const Options& options() const noexcept { return job_.options; }
    const detail::Host& host() const noexcept { return job_.host; }

    /// Returns the stream on which verbs overlap with the rank's own work; an inline stream without Options::overlap.
    Stream communication_stream() const noexcept { return lanes_.usual().stream(); }
    /// Returns the stream on which reductions overlap, with an order of its own; the communication stream without
    /// Options::separate_reductions.
    Stream reduction_stream() const noexcept { return lanes_.reductions().stream(); }
    Streams streams() const noexcept { return {{}, communication_stream(), reduction_stream()}; }

    /// Describes a verb over the group, called in the lane. The arguments must outlive it.
    detail::Call call(detail::Lane& lane, detail::Group& group, const std::string& axes,
                      const shardkit::Call& what) noexcept {
        return {what, *this, lane, group, group.channels[lane.number()], axes};
    }
    /// Runs work(lane), which makes MPI calls, behind the stream's earlier work, on the thread that makes them. For
    /// an inline stream, it runs behind the work of all streams, and has ended when this returns.
    /// @throws UsageError when the stream belongs to another World; an exception of the work (here, or from a later
    /// call)
    template <class Work>
    void execute(const Stream& stream, SourceLocation where, const Work& work) {
        detail::Lane* const lane = lanes_.of(stream);
        if (lane == nullptr) {
            throw_usage_error(where,
                              "mpi: the stream is no stream of this World's; pass a default one, "
                              "World::communication_stream() or World::reduction_stream()");
        }
        if (stream.is_inline()) { lanes_.synchronize_beside(*lane); }
        lane->submit(work);
        if (stream.is_inline()) { lane->stream().synchronize(); }
    }
    /// Returns when all work of the streams has run. @throws the first exception of that work
    void drain() const { streams().synchronize(); }

    /// Returns whether ranks of one host read and write each other's buffers; the same on all ranks.
    bool shares_memory() const noexcept { return job_.host.shares_memory(); }
    /// Takes zeroed memory that the ranks of this host see; null if there is none.
    std::shared_ptr<void> place(std::size_t bytes) const {
        const auto& window = job_.host.window();
        if (!shares_memory() || bytes == 0 || bytes > window->bytes()) { return nullptr; }
        void* const memory = window->take_buffer(bytes);
        if (memory == nullptr) { return nullptr; }
        return {memory, [window, bytes](void* at) { window->give_back(at, bytes); }};
    }

    /// Finds out how the ranks of the call's group, which is new, reach each other. Collective over it.
    void meet(const detail::Call& call) {
        meet_in_memory(call);
        if (options().compare_calls == CompareCalls::each_step) { call.group.trace_calls(); }
    }

  private:
    static constexpr const char* making = "World";

    void add_channels(detail::Group& group, const detail::Call& call) const {
        while (group.channels.size() < lanes_.size()) {
            group.add_channel(call.lane.duplicate(call, group.channels.front().comm), true);
        }
    }

    /// Sorts the ranks by host and, if they have windows, makes the places where they meet, one for each lane.
    void meet_in_memory(const detail::Call& call) {
        detail::Group& group = call.group;
        detail::Host& host = job_.host;
        host.sort(group);
        if (!host.window()) { return; }
        const std::size_t members = group.neighbours().size();
        const std::size_t bytes = detail::HostBlock::bytes(members);
        std::uint64_t offset = 0;  // offset of the first lane's place, plus 1
        if (group.place == 0) {
            if (auto* const memory = static_cast<std::byte*>(host.window()->take(group.channels.size() * bytes))) {
                for (std::size_t i = 0; i < group.channels.size(); ++i) {
                    detail::HostBlock::make(memory + i * bytes, members);
                }
                offset = static_cast<std::uint64_t>(memory - host.window()->data()) + 1;
            }
        }
        const std::vector<std::uint64_t> offsets = call.lane.gather(call, offset);
        for (const auto& each : group.hosts) {
            if (offsets[each.front()] == 0) { return; }
        }
        const std::size_t first = group.neighbours().front();
        std::byte* const blocks = host.at(group.world_ranks[first], offsets[first] - 1);
        for (std::size_t i = 0; i < group.channels.size(); ++i) {
            detail::Channel& channel = group.channels[i];
            channel.told = reinterpret_cast<detail::HostBlock*>(blocks + i * bytes);
            channel.own_told = &channel.told->members()[group.place].entered;
            if (host.shares_memory()) { channel.block = channel.told; }
        }
    }

    World(MPI_Comm comm, bool duplicate, const Options& options, SourceLocation where)
        : job_(options, ranks_of(comm, options, where)) {
        const std::size_t ranks = job_.returned.ranks();
        const std::size_t lanes = options.overlap && options.separate_reductions ? 2 : 1;
        for (std::size_t i = 0; i < lanes; ++i) { lanes_.add(job_, ranks); }
        detail::Group& everybody = groups_.emplace_back();
        int rank = 0;
        detail::check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank", making, where);
        everybody.rank = static_cast<std::size_t>(rank);
        everybody.world_ranks.resize(ranks);
        std::iota(everybody.world_ranks.begin(), everybody.world_ranks.end(), std::size_t{0});
        everybody.channels.reserve(lanes);  // `call` refers to the first one
        everybody.add_channel(comm, false);
        int compared = MPI_UNEQUAL;
        detail::check(MPI_Comm_compare(comm, MPI_COMM_WORLD, &compared), "MPI_Comm_compare", making, where);
        if (compared == MPI_IDENT || compared == MPI_CONGRUENT) { job_.arrivals.open(everybody.rank, ranks); }
        const detail::Call call = own_call(lanes_.usual(), making, where);
        if (duplicate) {
            call.channel.comm = call.lane.duplicate(call, comm);
            call.channel.owned = true;
        } else {
            MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
            detail::check(MPI_Comm_get_errhandler(comm, &handler), "MPI_Comm_get_errhandler", making, where);
            users_handler_ = handler;
            detail::check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", making, where);
        }
        add_channels(everybody, call);
        job_.returned.open(call.lane.duplicate(call, call.channel.comm));
        records_.emplace("mpi", options.record, everybody.rank, ranks, job_.journal);
        job_.records = &*records_;
        // Rank 0 has removed an earlier run's file of trouble by now.
        records_->set_run(call.lane.gather(call, shardkit::detail::new_run()).front());
        find_hosts(call);
        job_.arrivals.close();
        if (!options.overlap) { return; }
        if (lanes > 1 && level(where) < ThreadLevel::multiple) { job_.turns.require(); }
        for (detail::Lane& lane : lanes_) { lane.start(); }
    }
    /// Returns a call of the World itself, over all its ranks.
    detail::Call own_call(detail::Lane& lane, const char* as, SourceLocation where) {
        detail::Call call = this->call(lane, world_group(), axes_, {{}, 0, where});
        call.as = as;
        return call;
    }

    void find_hosts(const detail::Call& call) {
        const std::size_t self = world_group().rank;
        const std::size_t part = options().ranks_per_host == 0 ? 0 : self / options().ranks_per_host + 1;
        job_.host = detail::Host(call.lane.gather(call, detail::HostRecord::here(part)), self);
        open_windows(call);
        meet(call);
    }
    /// Opens memory windows on every rank or on none: each rank reports whether it could map all windows of its host.
    void open_windows(const detail::Call& call) {
        const bool mapped = job_.host.map(call.lane.gather(call, job_.host.open_window(options().shared_memory)));
        const std::vector<char> everybody = call.lane.gather(call, static_cast<char>(mapped ? 1 : 0));
        if (std::find(everybody.begin(), everybody.end(), char{0}) != everybody.end()) { job_.host.close(); }
        if (!shares_memory()) { return; }
        for (detail::Lane& lane : lanes_) { lane.spin_with(job_.host.ranks()); }
    }

    /// Returns the number of ranks. @throws CommError when MPI cannot be used as the options say
    static std::size_t ranks_of(MPI_Comm comm, const Options& options, SourceLocation where) {
        require_initialized(options, where);
        int size = 0;
        detail::check(MPI_Comm_size(comm, &size), "MPI_Comm_size", making, where);
        return static_cast<std::size_t>(size);
    }
    static void require_initialized(const Options& options, SourceLocation where) {
        int initialized = 0;
        int finalized = 0;
        detail::check(MPI_Initialized(&initialized), "MPI_Initialized", making, where);
        detail::check(MPI_Finalized(&finalized), "MPI_Finalized", making, where);
        if (initialized == 0 || finalized != 0) {
            throw CommError(
                "mpi", making,
                shardkit::detail::concat("MPI is ", finalized != 0 ? "finalised already" : "not initialised",
                                         "; make an mpi::Environment (or call MPI_Init_thread) first in main()"),
                where);
        }
        const ThreadLevel given = level(where);
        if (options.overlap && given < ThreadLevel::serialized) {
            throw CommError("mpi", making,
                            shardkit::detail::concat("Options::overlap needs ", name(ThreadLevel::serialized),
                                                     ", MPI was initialised with ", name(given)),
                            where);
        }
        if (options.message_elements == 0 || options.message_elements > max_count) {
            throw_invalid_argument(where, "mpi::Options: message_elements is ", options.message_elements,
                                   ", expected 1 to ", max_count);
        }
    }
    static ThreadLevel level(SourceLocation where) {
        int level = 0;
        detail::check(MPI_Query_thread(&level), "MPI_Query_thread", making, where);
        return ThreadLevel(level);
    }
    static constexpr std::size_t max_count = 2147483647;

    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
    detail::Job job_;
    const std::string axes_ = "world";
    std::deque<detail::Group> groups_;  // a deque, because communicators point into it
    std::optional<shardkit::detail::RecordWriter> records_;
    std::optional<MPI_Errhandler> users_handler_;
    detail::Lanes lanes_;  // last: their threads use all the others
};

}  // namespace shardkit::mpi
