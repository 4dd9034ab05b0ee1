// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/host/processor.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/job.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/watch.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::mpi::detail {

/// Runs calls one after the other, in the rank's own thread or in one of the lane's. It has what they need while they
/// run, and lets them wait for messages and for the words of their host. Every wait ends. What it has over a group is
/// the group's channel of the lane's number.
class Lane {
  public:
    Lane(std::size_t number, Job& job, std::size_t ranks)
        : number_(number),
          job_(job),
          spins_(spins(job.options)),
          requests_(4 * ranks, MPI_REQUEST_NULL),
          counts_(2 * ranks),
          // At least one element of the widest type, twice, from every rank.
          staging_(std::max(
              {job.options.staging_bytes, 2 * (ranks + 1) * sizeof(double), ranks * detail::carried_bytes})) {}
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    std::size_t number() const noexcept { return number_; }
    Turns& turns() const noexcept { return job_.turns; }

    /// Gives the lane a thread from here on.
    void start() { queue_ = std::make_unique<host::detail::CommandQueue>(spins_); }
    /// Returns the lane's stream, an inline one before `start`.
    host::HostStream stream() const noexcept { return queue_ ? host::HostStream(*queue_) : host::HostStream(); }
    bool runs(const host::HostStream& stream) const noexcept { return queue_ && stream.runs_on(*queue_); }
    /// Runs work(lane) behind what the lane was given before. It is copied, and returns at once where there is a
    /// thread.
    template <class Work>
    void submit(const Work& work) {
        stream().submit([this, work] { work(*this); });
    }
    /// Returns when all that it was given has run, or was dropped.
    void settle() const noexcept {
        if (queue_) { queue_->await(queue_->submitted()); }
    }

    /// Returns room for 4 requests per rank.
    std::span<MPI_Request> requests() noexcept { return requests_; }
    /// Returns scratch memory, and room for 2 counts per rank.
    std::span<std::uint8_t> staging() const noexcept { return staging_.span(); }
    std::span<int> counts() noexcept { return counts_; }

    /// Waits until the requests have ended. `peer`: the member that they depend on, or all members.
    /// @throws as Watch::look
    void await(const Call& call, std::span<MPI_Request> requests, std::optional<std::size_t> peer = {}) {
        Watch watch(call, peer, job_);
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
            if (looks % 64 == 0) { watch.look(); }
        }
    }

    /// Waits until the word of the call's channel reaches the target: all have entered.
    /// @throws as Watch::look; PeerError when a member has given up. Then nobody enters any more.
    void await_entry(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.channel.block->word;
        shared::detail::Progress seen = word.poll(target, word_spins_);
        if (seen == shared::detail::Progress::pending) {
            Watch watch(call, {}, job_);
            try {
                seen = word.block(target, [&] { watch.look(); });
            } catch (...) {
                call.channel.block->note_given_up(call.group.place);
                // The last one may have come in this moment.
                if (word.give_up(target) != shared::detail::Progress::reached) { throw; }
                return;
            }
        }
        if (seen == shared::detail::Progress::poisoned) { throw_given_up(call); }
    }
    /// Waits for the exit likewise, which is counted even when somebody has given up.
    void await_exit(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.channel.block->word;
        Watch watch(call, {}, job_);
        try {
            word.wait_for_exit(target, word_spins_, [&] { watch.look(); });
        } catch (...) {
            call.channel.block->note_given_up(call.group.place);
            word.poison();
            throw;
        }
    }
    [[noreturn]] void throw_given_up(const Call& call) {
        // Why it has, if this rank can see that.
        Watch(call, {}, job_).look();
        const std::size_t peer = call.group.world_ranks[call.group.neighbours()[call.channel.block->who_gave_up()]];
        throw PeerError("mpi", call.doing(), peer,
                        shardkit::detail::concat("rank ", peer, " has given up waiting for a rank of this group"),
                        call.where);
    }

    /// Gathers every member's record, by member; collective over the call's group.
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
    /// Starts one collective of MPI's and waits for it: start(request) is the nonblocking call. Never a blocking one,
    /// which would hang where a rank is gone, and spin where ranks share a processor.
    template <class Start>
    void complete(const Call& call, std::string_view mpi_call, Start start) {
        MPI_Request& request = requests_.front();
        request = MPI_REQUEST_NULL;
        call.mpi().check(start(&request), mpi_call);
        await(call, {&request, 1});
    }

    /// Lets each of so many ranks of this host wait on words: each may spin, and the thread that makes the calls
    /// beside the one that waits for it.
    void spin_with(std::size_t ranks) noexcept {
        const std::size_t spinning = ranks * (job_.options.overlap ? 2 : 1);
        word_spins_ =
            shared::detail::SpinBudget(spinning <= job_.host.processors() ? shared::detail::brief_spins : 0);
    }

  private:
    /// Returns the looks before a waiting rank yields its processor: none where it may have to share it.
    static std::uint32_t spins(const Options& options) {
        return host::detail::allowed_cpus() > (options.overlap ? 2U : 1U) ? 2000 : 1;
    }

    std::size_t number_;
    Job& job_;
    std::uint32_t spins_;  // looks at messages before a waiting rank yields its processor
    shared::detail::SpinBudget word_spins_;
    std::vector<MPI_Request> requests_;
    std::vector<int> counts_;
    HostBuffer<std::uint8_t> staging_;
    std::unique_ptr<host::detail::CommandQueue> queue_;  // last: its thread uses all the others
};

inline MpiCall Call::mpi() const { return {*this, lane.turns()}; }

/// Holds the lanes of a World: one, or one for reductions and one for what else is communicated, with a thread each.
class Lanes {
  public:
    Lanes() = default;
    Lanes(const Lanes&) = delete;
    Lanes& operator=(const Lanes&) = delete;
    /// Ends all lanes together: a lane may be told to wait for another.
    ~Lanes() {
        for (const Lane& lane : lanes_) { lane.settle(); }
    }

    void add(Job& job, std::size_t ranks) { lanes_.emplace_back(lanes_.size(), job, ranks); }
    std::size_t size() const noexcept { return lanes_.size(); }
    auto begin() noexcept { return lanes_.begin(); }
    auto end() noexcept { return lanes_.end(); }
    /// Returns the lane of gathers, and of all that is neither a gather nor a reduction.
    Lane& usual() noexcept { return lanes_.front(); }
    const Lane& usual() const noexcept { return lanes_.front(); }
    /// Returns the lane of reductions; the usual one where they have none of their own.
    const Lane& reductions() const noexcept { return lanes_.back(); }
    /// Returns the lane where what is given to the stream runs; null for another World's.
    Lane* of(const host::HostStream& stream) noexcept {
        if (stream.is_inline()) { return &lanes_.front(); }
        const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.runs(stream); });
        return found == lanes_.end() ? nullptr : &*found;
    }
    /// Returns when the other lanes have run what they were given. @throws what a command of theirs threw
    void synchronize_beside(const Lane& lane) const {
        for (const Lane& other : lanes_) {
            if (&other != &lane) { other.stream().synchronize(); }
        }
    }

  private:
    std::deque<Lane> lanes_;
};

}  // namespace shardkit::mpi::detail
