// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/host/processor.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/watch.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::mpi::detail {

/// Runs calls one after the other, in the rank's own thread or in one of its own. It has the resources that they
/// need, and waits for messages and for the words of its host; every wait ends. Over a group, it uses the group's
/// channel with its own number.
class Lane : shardkit::detail::NotCopied {
  public:
    Lane(std::size_t number, Job& job, std::size_t ranks)
        : number_(number),
          job_(job),
          spins_(spins(job.options)),
          requests_(4 * ranks, MPI_REQUEST_NULL),
          // At least two elements of the widest type from every rank.
          staging_(std::max(
              {job.options.staging_bytes, 2 * (ranks + 1) * sizeof(double), ranks * detail::carried_bytes})) {}

    std::size_t number() const noexcept { return number_; }
    CallTurns& turns() const noexcept { return job_.turns; }

    /// Starts a thread for the lane.
    void start() { queue_ = std::make_unique<host::detail::CommandQueue>(spins_); }
    /// Returns the lane's stream; an inline one before `start`.
    Stream stream() const noexcept { return queue_ ? Stream(*queue_) : Stream(); }
    bool runs(const Stream& stream) const noexcept { return queue_ && stream.runs_on(*queue_); }
    /// Runs work(lane) behind the lane's earlier work. The work is copied. With a thread, this returns at once.
    template <class Work>
    void submit(const Work& work) {
        stream().submit([this, work] { work(*this); });
    }
    /// Returns when all its work has run or was dropped.
    void settle() const noexcept {
        if (queue_) { queue_->await(queue_->submitted()); }
    }

    /// Returns space for 4 requests per rank.
    std::span<MPI_Request> requests() noexcept { return requests_; }
    /// Returns scratch memory.
    std::span<std::uint8_t> staging() const noexcept { return staging_.span(); }

    /// Waits until the requests have ended. `peer` is the member that they depend on; without it they depend on all
    /// members.
    /// @throws as Watch::look
    void await(const Call& call, std::span<MPI_Request> requests, std::optional<std::size_t> peer = {},
               Awaited awaited = Awaited::entry) {
        Watch watch(call, peer, job_, awaited);
        for (std::uint32_t looks = 1;; ++looks) {
            int ended = 0;
            call.mpi().check(
                MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                "MPI_Testall");
            if (ended != 0) { return; }
            if (looks < spins_) {
                host::detail::pause();
                continue;
            }
            std::this_thread::yield();
            if (looks % 64 == 0 || (looks % 8 == 0 && watch.is_due())) { watch.look(); }
        }
    }

    /// Waits until the word of the call's channel reaches the target, when all members have entered.
    /// @throws like Watch::look; PeerError when a member has given up. No member enters any more then.
    void await_entry(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.channel.block->word;
        shared::detail::Progress seen = word.poll(target, word_spins_);
        if (seen == shared::detail::Progress::pending) {
            Watch watch(call, {}, job_, Awaited::entry);
            try {
                seen = word.block(target, [&] { watch.look(); });
            } catch (...) {
                call.channel.block->note_given_up(call.group.place);
                // The last member may have entered just now.
                if (word.give_up(target) != shared::detail::Progress::reached) { throw; }
                return;
            }
        }
        if (seen == shared::detail::Progress::poisoned) { throw_given_up(call); }
    }
    /// Waits for the exit likewise. Exits are counted even if a member has given up.
    void await_exit(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.channel.block->word;
        Watch watch(call, {}, job_, Awaited::exit);
        try {
            word.wait_for_exit(target, word_spins_, [&] { watch.look(); });
        } catch (...) {
            call.channel.block->note_given_up(call.group.place);
            word.poison();
            throw;
        }
    }
    [[noreturn]] void throw_given_up(const Call& call) {
        // Throws the reason, if this rank can see it.
        Watch(call, {}, job_, Awaited::entry).look();
        const std::size_t peer = call.group.world_ranks[call.group.neighbours()[call.channel.block->who_gave_up()]];
        const std::string why =
            shardkit::detail::concat("rank ", peer, " has given up waiting for a rank of this group");
        throw PeerError("mpi", call.doing(), peer, shardkit::detail::concat(why, Watch::write_records(job_, why)),
                        call.where);
    }

    /// Waits until all other ranks have said that they have returned, as this one does. Collective over the world.
    /// @throws as Watch::look
    void exchange_returns(const Call& call, const std::deque<Group>& groups) {
        const std::span<MPI_Request> sent = job_.returned.say(groups, call.group.rank, call.where);
        for (Watch watch(call, {}, job_, Awaited::returns); !job_.returned.all_gone();) {
            watch.look();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        await(call, sent, {}, Awaited::returns);
    }

    /// Returns a duplicate of a communicator that returns its errors. Collective over the call's group.
    /// @throws as Watch::look
    MPI_Comm duplicate(const Call& call, MPI_Comm comm) {
        auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
        MPI_Request& request = requests_.front();
        call.mpi().check(MPI_Comm_idup(comm, made.get(), &request), "MPI_Comm_idup");
        try {
            await(call, {&request, 1});
        } catch (...) {
            static_cast<void>(made.release());  // MPI writes there when the others come after all
            throw;
        }
        call.mpi().check(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        return *made;
    }

    /// Gathers every member's record, by member. Collective over the call's group.
    template <class Record>
    std::vector<Record> gather(const Call& call, const Record& own) {
        const std::span<Record> records = call.channel.records<Record>(call.group.size());
        records[call.group.rank] = own;
        complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
            return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, records.data(), sizeof(Record), MPI_BYTE,
                                  call.channel.comm, request);
        });
        return std::vector<Record>(records.begin(), records.end());
    }
    /// Starts one MPI collective and waits for it; start(request) must make the nonblocking call. A blocking one
    /// would hang if a rank is gone, and spin where ranks share a processor.
    template <class Start>
    void complete(const Call& call, std::string_view mpi_call, Start start) {
        MPI_Request& request = requests_.front();
        request = MPI_REQUEST_NULL;
        call.mpi().check(start(&request), mpi_call);
        await(call, {&request, 1});
    }

    /// Sets how long waits for words spin, for `ranks` ranks on this host. Each rank may spin, and with overlap also
    /// the thread that makes its calls.
    void spin_with(std::size_t ranks) noexcept {
        const std::size_t spinning = ranks * (job_.options.overlap ? 2 : 1);
        word_spins_ =
            shared::detail::SpinBudget(spinning <= job_.host.processors() ? shared::detail::brief_spins : 0);
    }

  private:
    /// Returns the number of polls before a waiting rank yields its processor: 1 if it may have to share it.
    static std::uint32_t spins(const Options& options) {
        return host::detail::allowed_cpus() > (options.overlap ? 2U : 1U) ? 2000 : 1;
    }

    std::size_t number_;
    Job& job_;
    std::uint32_t spins_;  // polls for messages before a waiting rank yields its processor
    shared::detail::SpinBudget word_spins_;
    std::vector<MPI_Request> requests_;
    HostBuffer<std::uint8_t> staging_;
    std::unique_ptr<host::detail::CommandQueue> queue_;  // last: its thread uses all the others
};

inline MpiCall Call::mpi() const { return {*this, lane.turns()}; }

/// The lanes of a World: one, or two with a thread each, for reductions and for all other communication.
class Lanes : shardkit::detail::NotCopied {
  public:
    /// Ends all lanes together, as a lane may have to wait for another.
    ~Lanes() {
        for (const Lane& lane : lanes_) { lane.settle(); }
    }

    void add(Job& job, std::size_t ranks) { lanes_.emplace_back(lanes_.size(), job, ranks); }
    std::size_t size() const noexcept { return lanes_.size(); }
    auto begin() noexcept { return lanes_.begin(); }
    auto end() noexcept { return lanes_.end(); }
    /// Returns the lane of gathers, and of everything that is neither a gather nor a reduction.
    Lane& usual() noexcept { return lanes_.front(); }
    const Lane& usual() const noexcept { return lanes_.front(); }
    /// Returns the lane of reductions; the usual one if they have none of their own.
    const Lane& reductions() const noexcept { return lanes_.back(); }
    /// Returns the lane that runs the stream's work; null for a stream of another World.
    Lane* of(const Stream& stream) noexcept {
        if (stream.is_inline()) { return &lanes_.front(); }
        const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.runs(stream); });
        return found == lanes_.end() ? nullptr : &*found;
    }
    /// Returns when the other lanes have run their work. @throws what a command of theirs threw
    void synchronize_beside(const Lane& lane) const {
        for (const Lane& other : lanes_) {
            if (&other != &lane) { other.stream().synchronize(); }
        }
    }

  private:
    std::deque<Lane> lanes_;
};

}  // namespace shardkit::mpi::detail
