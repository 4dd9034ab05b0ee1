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
#include <shardkit/backend/mpi/options.hpp>
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
class World {
  public:
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
    const Options& options() const noexcept { return options_; }
    /// Of verbs as they are given to a stream; used by the rank's own thread.
    Journal& journal() noexcept { return journal_; }
    detail::Group& add_group(detail::Group group) { return groups_.emplace_back(std::move(group)); }
    std::uint64_t groups_made() const noexcept { return groups_.size(); }
    /// The latest groups of these ranks, in this order, that no communicator of this rank uses any more, by their
    /// numbers, which are not 0; zeros behind them. The world's is never among them.
    detail::GroupNumbers idle_groups(const std::vector<std::size_t>& world_ranks) const noexcept {
        detail::GroupNumbers numbers{};
        std::size_t found = 0;
        for (std::size_t i = groups_.size() - 1; i > 0 && found < numbers.size(); --i) {
            const detail::Group& group = groups_[i];
            if (group.is_idle() && group.world_ranks == world_ranks) { numbers[found++] = group.number; }
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
    std::span<MPI_Request> requests() noexcept { return requests_; }
    std::span<int> counts() noexcept { return counts_; }

    /// Waits until the requests have ended. `peer`: the member that they depend on, or all members.
    /// @throws PeerError when a rank that they need has returned; CommError after Options::timeout
    void await(const detail::Call& call, std::span<MPI_Request> requests, std::optional<std::size_t> peer = {}) {
        using Clock = std::chrono::steady_clock;
        std::optional<Clock::time_point> begin;
        std::optional<Clock::time_point> peer_left;
        for (std::uint32_t looks = 1;; ++looks) {
            int ended = 0;
            call.check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                       "MPI_Testall");
            if (ended != 0) { return; }
            if (looks < spins_) {
                host::detail::pause();
                continue;
            }
            std::this_thread::yield();
            if (looks % 64 != 0) { continue; }
            const Clock::time_point now = Clock::now();
            if (!begin) { begin = now; }
            farewells_.listen(call.where);
            if (peer) {
                // What it sent before it returned is on its way; this long it cannot take.
                const bool gone = farewells_.gone(call.group.world_ranks[*peer]);
                if (gone && !peer_left) { peer_left = now; }
                if (peer_left && now - *peer_left > std::chrono::milliseconds(500)) { throw_returned(call, *peer); }
            } else {
                throw_if_one_has_returned(call);
            }
            if (now - *begin > options_.timeout) {
                throw CommError("mpi", call.doing(),
                                shardkit::detail::concat("not every rank has made this call within ",
                                                         options_.timeout.count(), " ms"),
                                call.where);
            }
        }
    }

    /// Starts one collective of MPI's and waits for it: start(request) is the nonblocking call. Never a blocking one,
    /// which would hang where a rank is gone, and spin where ranks share a processor.
    template <class Start>
    void complete(const detail::Call& call, std::string_view mpi_call, Start start) {
        MPI_Request& request = requests_.front();
        request = MPI_REQUEST_NULL;
        call.check(start(&request), mpi_call);
        await(call, {&request, 1});
    }

  private:
    static constexpr const char* making = "World";

    World(MPI_Comm comm, bool duplicate, const Options& options, SourceLocation where)
        : options_(options), spins_(spins(options)) {
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
        staging_ = HostBuffer<std::uint8_t>(std::max(options.staging_bytes, 2 * (ranks + 1) * sizeof(double)));
        if (options.overlap) { queue_ = std::make_unique<host::detail::CommandQueue>(spins_); }
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
    /// Looks before a waiting rank yields its processor: none where it may have to share it.
    static std::uint32_t spins(const Options& options) {
        return host::detail::allowed_cpus() > (options.overlap ? 2U : 1U) ? 2000 : 1;
    }

    void throw_if_one_has_returned(const detail::Call& call) const {
        for (std::size_t member = 0; member < call.group.size(); ++member) {
            const std::size_t rank = call.group.world_ranks[member];
            if (farewells_.gone(rank) && farewells_.calls(rank, call.group) <= call.sequence) {
                throw_returned(call, member);
            }
        }
    }
    [[noreturn]] static void throw_returned(const detail::Call& call, std::size_t member) {
        const std::size_t gone = call.group.world_ranks[member];
        const std::size_t self = call.group.world_ranks[call.group.rank];
        throw PeerError("mpi", call.doing(), gone,
                        shardkit::detail::concat("rank ", gone, " returned before rank ", self, "'s ", call.doing()),
                        call.where);
    }

    static constexpr std::size_t max_count = 2147483647;

    Options options_;
    std::uint32_t spins_;
    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
    std::deque<detail::Group> groups_;  // a deque, because communicators point into it
    Journal journal_;
    detail::Farewells farewells_;
    HostBuffer<std::uint8_t> staging_;
    std::vector<MPI_Request> requests_;
    std::vector<int> counts_;
    std::optional<MPI_Errhandler> users_handler_;
    std::unique_ptr<host::detail::CommandQueue> queue_;  // last: its thread uses all the others
};

}  // namespace shardkit::mpi
