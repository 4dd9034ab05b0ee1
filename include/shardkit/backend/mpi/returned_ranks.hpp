// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>

namespace shardkit::mpi::detail {

/// Ranks tell each other when their functions have returned, with the number of collectives that they had entered
/// over each of their groups, in each lane. A rank that waits for a later collective would wait forever, and can
/// report it. Owns a communicator for these messages. Every lane checks them; a thread that calls MPI here must have
/// its turn.
class ReturnedRanks {
  public:
    explicit ReturnedRanks(std::size_t ranks) : heard_(ranks) {}
    /// Opens the exchange of these messages; before, none is heard.
    /// @pre no lane checks yet
    void open(MPI_Comm comm) { comm_ = comm; }

    std::size_t ranks() const noexcept { return heard_.size(); }
    /// Returns whether all ranks but this one have returned.
    bool all_gone() const noexcept {
        const std::lock_guard lock(mutex_);
        return gone_count_ + 1 == heard_.size();
    }
    bool gone(std::size_t rank) const noexcept {
        const std::lock_guard lock(mutex_);
        return heard_[rank].gone;
    }
    /// Returns how many collectives of the channel the rank had entered when it returned.
    /// @pre gone(rank)
    std::uint64_t calls(std::size_t rank, const Channel& channel) const noexcept {
        const std::lock_guard lock(mutex_);
        for (const Entry& entry : heard_[rank].entries) {
            if (entry.channel == channel.number) { return entry.calls; }
        }
        return 0;
    }

    /// Receives the messages that have arrived; does not wait.
    void listen(SourceLocation where) {
        const std::lock_guard lock(mutex_);
        while (comm_ != MPI_COMM_NULL) {
            int arrived = 0;
            MPI_Status status;
            check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &arrived, &status), "MPI_Iprobe", doing, where);
            if (arrived == 0) { return; }
            int bytes = 0;
            check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", doing, where);
            Heard& heard = heard_[static_cast<std::size_t>(status.MPI_SOURCE)];
            heard.entries.resize(static_cast<std::size_t>(bytes) / sizeof(Entry));
            check(MPI_Recv(heard.entries.data(), bytes, MPI_BYTE, status.MPI_SOURCE, tag, comm_, MPI_STATUS_IGNORE),
                  "MPI_Recv", doing, where);
            heard.gone = true;
            ++gone_count_;
        }
    }

    /// Begins to tell all other ranks that this one has returned. The returned requests must end before `close`.
    /// @pre no lane checks any more
    std::span<MPI_Request> say(const std::deque<Group>& groups, std::size_t self, SourceLocation where) {
        for (const Group& group : groups) {
            for (const Channel& channel : group.channels) { own_.push_back({channel.number, channel.calls}); }
        }
        const int bytes = static_cast<int>(own_.size() * sizeof(Entry));
        for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
            if (rank == self) { continue; }
            check(MPI_Isend(own_.data(), bytes, MPI_BYTE, static_cast<int>(rank), tag, comm_,
                            &sent_.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Isend", doing, where);
        }
        return sent_;
    }
    /// Ends the exchange. Collective over the world.
    void close(SourceLocation where) { check(MPI_Comm_free(&comm_), "MPI_Comm_free", doing, where); }

  private:
    static constexpr int tag = 0;
    static constexpr const char* doing = "the end of the job";

    struct Entry {
        std::uint64_t channel;
        std::uint64_t calls;
    };
    struct Heard {
        bool gone = false;
        std::vector<Entry> entries;
    };

    MPI_Comm comm_ = MPI_COMM_NULL;
    std::vector<Entry> own_;  // what is sent, and the messages
    std::vector<MPI_Request> sent_;
    mutable std::mutex mutex_;  // guards the following members
    std::vector<Heard> heard_;
    std::size_t gone_count_ = 0;
};

}  // namespace shardkit::mpi::detail
