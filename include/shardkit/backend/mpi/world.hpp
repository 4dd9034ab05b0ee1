// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/host/processor.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/farewells.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/waits.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::mpi {

/// A communicator of the user's, to be used as it is: the user makes no calls on it while a World does.
struct Borrow {
    MPI_Comm comm;
};

/// Everything that the communicators of one rank share: MPI handles, staging memory, the journal, and, with overlap,
/// the thread that makes the MPI calls. It outlives them. One rank of one process; used by one thread.
class World : detail::Waits {
  public:
    using Waits::await;
    using Waits::await_entry;
    using Waits::await_exit;
    using Waits::complete;
    using Waits::gather;
    using Waits::host;
    using Waits::options;
    using Waits::requests;
    using Waits::throw_given_up;

    /// Works on a duplicate of `comm`. Collective over it.
    /// @throws CommError when MPI is not initialised, was finalised or has too low a thread level for the options
    explicit World(MPI_Comm comm, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : World(comm, true, options, where) {}
    /// Works on the communicator itself; its error handler is MPI_ERRORS_RETURN until `finish`.
    explicit World(Borrow borrowed, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : World(borrowed.comm, false, options, where) {}
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    /// Ends the job by MPI_Abort, and says so, when `finish` was not called and no exception is under way: what
    /// exit() does to a World with static storage. Its peers would wait for this rank, and MPI_Finalize for them;
    /// after MPI_Finalize nobody does.
    ~World() {
        int finalized = 0;
        if (finished_ || std::uncaught_exceptions() > exceptions_) { return; }
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized != 0) { return; }
        detail::end_job(world_group().rank, world_group().size(), "",
                        "an mpi::World ended without finish(), by exit() perhaps; the job ends");
    }

    /// The last call: waits until every rank has made it, then frees what MPI holds for this World. Collective.
    /// A rank that fails must not come here but end its job with MPI_Abort, as mpi::run does.
    void finish(SourceLocation where = SourceLocation::current()) {
        execute(host::HostStream(), where, [this, where] {
            const auto rest = [] { std::this_thread::sleep_for(std::chrono::microseconds(50)); };
            farewells_.exchange(groups_, world_group().rank, rest, where);
            for (detail::Group& group : groups_) {
                detail::check(group.owned.free(), "MPI_Comm_free", "finish", where);
            }
            if (users_handler_) {
                detail::check(MPI_Comm_set_errhandler(world_group().comm, *users_handler_), "MPI_Comm_set_errhandler",
                              "finish", where);
            }
        });
        finished_ = true;
    }

    detail::Group& world_group() noexcept { return groups_.front(); }
    const detail::Group& world_group() const noexcept { return groups_.front(); }
    /// Of verbs as they are given to a stream; used by the rank's own thread.
    Journal& journal() noexcept { return journal_; }
    detail::Group& add_group(detail::Group group) { return groups_.emplace_back(std::move(group)); }
    std::uint64_t groups_made() const noexcept { return groups_.size(); }
    /// The latest groups of these ranks, in this order, that no communicator of this rank uses any more. The world's
    /// is never among them.
    shared::detail::GroupNumbers idle_groups(const std::vector<std::size_t>& world_ranks) const noexcept {
        shared::detail::GroupNumbers numbers{};
        std::size_t found = 0;
        for (std::size_t i = groups_.size() - 1; i > 0 && found < numbers.size(); --i) {
            const detail::Group& group = groups_[i];
            if (group.handles.none() && group.world_ranks == world_ranks) { numbers[found++] = group.number; }
        }
        return numbers;
    }
    detail::Group& group_of(std::uint64_t number) noexcept {
        return *std::find_if(groups_.begin(), groups_.end(),
                             [&](const auto& group) { return group.number == number; });
    }

    /// The stream on which verbs overlap with the rank's own work; an inline stream without Options::overlap.
    host::HostStream communication_stream() const noexcept {
        return queue_ ? host::HostStream(*queue_) : host::HostStream();
    }

    /// Runs MPI calls in the one order that all verbs of this rank have, on whichever thread makes them; for an
    /// inline stream they have ended when this returns.
    /// @throws UsageError when the stream is another World's; whatever the work throws (here, or from a later call)
    template <class Work>
    void execute(const host::HostStream& stream, SourceLocation where, const Work& work) {
        if (!stream.is_inline() && !(queue_ && stream.runs_on(*queue_))) {
            throw_usage_error(where,
                              "mpi: the stream is no stream of this World's; pass a default one or "
                              "World::communication_stream()");
        }
        if (!queue_) {
            work();
            return;
        }
        const std::uint64_t position = queue_->submit(work);
        if (stream.is_inline()) { queue_->wait(position); }
    }
    void drain() {
        if (queue_) { queue_->wait(queue_->submitted()); }
    }

    /// For the calls that `execute` runs: scratch memory, and room for 4 requests and 2 counts per rank.
    std::span<std::uint8_t> staging() const noexcept { return staging_.span(); }
    std::span<int> counts() noexcept { return counts_; }

    /// Whether ranks of one host read and write each other's buffers; the same on all ranks.
    bool shares_memory() const noexcept { return host().shares_memory(); }
    /// Zeroed memory that the ranks of this host see, or, where there is none, this process's own.
    template <Element T>
    HostBuffer<T> buffer(std::size_t size) const {
        if (const auto& window = host_.window(); window && size > 0 && size <= window->bytes() / sizeof(T)) {
            if (void* const memory = window->take_buffer(size * sizeof(T))) {
                return HostBuffer<T>(
                    std::shared_ptr<T>(static_cast<T*>(memory),
                                       [window, size](T* at) { window->give_back(at, size * sizeof(T)); }),
                    size);
            }
        }
        return HostBuffer<T>(size);
    }

    /// Collective over the call's group, which is new: sorts its ranks by host, and makes the places where they meet,
    /// if they share memory.
    void meet(const detail::Call& call) {
        detail::Group& group = call.group;
        host_.sort(group);
        if (!host_.shares_memory()) { return; }
        std::uint64_t offset = 0;  // and 1
        if (group.place == 0) {
            const std::size_t members = group.neighbours().size();
            if (void* const memory = host_.window()->take(detail::HostBlock::bytes(members))) {
                detail::HostBlock::make(memory, members);
                offset = static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - host_.window()->data()) + 1;
            }
        }
        const std::vector<std::uint64_t> offsets = gather(call, offset);
        for (const auto& members : group.hosts) {
            if (offsets[members.front()] == 0) { return; }
        }
        const std::size_t first = group.neighbours().front();
        group.block = reinterpret_cast<detail::HostBlock*>(host_.at(group.world_ranks[first], offsets[first] - 1));
    }

  private:
    static constexpr const char* making = "World";

    World(MPI_Comm comm, bool duplicate, const Options& options, SourceLocation where) : Waits(options) {
        require_initialized(options, where);
        detail::Group everybody;
        everybody.comm = comm;
        if (duplicate) {
            everybody.owned = detail::OwnedComm(duplicate_of(comm, where));
            everybody.comm = everybody.owned.get();
        } else {
            MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
            detail::check(MPI_Comm_get_errhandler(comm, &handler), "MPI_Comm_get_errhandler", making, where);
            users_handler_ = handler;
            return_errors(comm, where);
        }
        int rank = 0;
        int size = 0;
        detail::check(MPI_Comm_rank(everybody.comm, &rank), "MPI_Comm_rank", making, where);
        detail::check(MPI_Comm_size(everybody.comm, &size), "MPI_Comm_size", making, where);
        everybody.rank = static_cast<std::size_t>(rank);
        everybody.world_ranks.resize(static_cast<std::size_t>(size));
        std::iota(everybody.world_ranks.begin(), everybody.world_ranks.end(), std::size_t{0});
        groups_.push_back(std::move(everybody));

        const std::size_t ranks = world_group().size();
        farewells_ = detail::Farewells(detail::OwnedComm(duplicate_of(comm, where)), ranks);
        requests_.resize(4 * ranks, MPI_REQUEST_NULL);
        counts_.resize(2 * ranks);
        // At least one element of the widest type, twice, from every rank.
        staging_ = HostBuffer<std::uint8_t>(
            std::max({options.staging_bytes, 2 * (ranks + 1) * sizeof(double), ranks * detail::carried_bytes}));
        find_hosts(where);
        if (options.overlap) { queue_ = std::make_unique<host::detail::CommandQueue>(spins_); }
    }

    void find_hosts(SourceLocation where) {
        const std::string axes = "world";
        const detail::Call call{*this, world_group(), axes, {.verb = Verb::split}, where};
        const std::size_t self = world_group().rank;
        const std::size_t part = options_.ranks_per_host == 0 ? 0 : self / options_.ranks_per_host + 1;
        host_ = detail::Host(gather(call, detail::HostRecord::here(part)), self);
        if (options_.shared_memory) { share_memory(call); }
        meet(call);
    }
    /// Every rank or none: each tells whose memory it could map.
    void share_memory(const detail::Call& call) {
        const bool mapped = host_.map(gather(call, host_.open_window()));
        const std::vector<char> everybody = gather(call, static_cast<char>(mapped ? 1 : 0));
        if (std::find(everybody.begin(), everybody.end(), char{0}) != everybody.end()) {
            host_.close();
            return;
        }
        spin_with(host_.ranks());
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
        int level = 0;
        detail::check(MPI_Query_thread(&level), "MPI_Query_thread", making, where);
        if (options.overlap && detail::from_mpi(level) < ThreadLevel::serialized) {
            throw CommError("mpi", making,
                            shardkit::detail::concat("Options::overlap needs ", name(ThreadLevel::serialized),
                                                     ", MPI was initialised with ", name(detail::from_mpi(level))),
                            where);
        }
        if (options.message_elements == 0 || options.message_elements > max_count) {
            throw_invalid_argument(where, "mpi::Options: message_elements is ", options.message_elements,
                                   ", expected 1 to ", max_count);
        }
    }
    static MPI_Comm duplicate_of(MPI_Comm comm, SourceLocation where) {
        MPI_Comm copy = MPI_COMM_NULL;
        detail::check(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup", making, where);
        return_errors(copy, where);
        return copy;
    }
    static void return_errors(MPI_Comm comm, SourceLocation where) {
        detail::check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", making, where);
    }
    static constexpr std::size_t max_count = 2147483647;

    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
    std::deque<detail::Group> groups_;  // a deque, because communicators point into it
    Journal journal_;
    HostBuffer<std::uint8_t> staging_;
    std::vector<int> counts_;
    std::optional<MPI_Errhandler> users_handler_;
    std::unique_ptr<host::detail::CommandQueue> queue_;  // last: its thread uses all the others
};

}  // namespace shardkit::mpi
