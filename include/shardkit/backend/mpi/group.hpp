// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::mpi {
class World;
}

namespace shardkit::mpi::detail {

/// Lets the threads of a process call MPI one at a time, where MPI requires that. First come, first served: a thread
/// that polls for its messages cannot keep out another one.
class CallTurns : shardkit::detail::NotCopied {
  public:
    /// Requires turns from now on. Call it while there is only one thread.
    void require() noexcept { required_ = true; }

    /// Waits for this thread's turn, and ends it with its scope. A thread must not take two at once.
    class Turn : shardkit::detail::NotCopied {
      public:
        explicit Turn(CallTurns& turns) noexcept : turns_(turns.required_ ? &turns : nullptr) {
            if (turns_ == nullptr) { return; }
            const std::uint32_t own = turns_->next_.fetch_add(1, std::memory_order_relaxed);
            for (std::uint32_t now = 0; (now = turns_->now_.load(std::memory_order_acquire)) != own;) {
                turns_->now_.wait(now, std::memory_order_acquire);
            }
        }
        ~Turn() {
            if (turns_ == nullptr) { return; }
            turns_->now_.fetch_add(1, std::memory_order_release);
            turns_->now_.notify_all();
        }

      private:
        CallTurns* turns_;
    };

  private:
    bool required_ = false;
    std::atomic<std::uint32_t> next_{0};
    std::atomic<std::uint32_t> now_{0};
};

struct HostBlock;
class Lane;
class MpiCall;

/// Remembers, for calls that ranks do not compare each time, whether all ranks saw their peers' memory when they
/// compared them.
class SeenMemory {
  public:
    /// Returns the entry of a call's signature, whatever is stated; null before `add`. Fast if calls repeat in the
    /// same order.
    const bool* find(Signature signature) noexcept {
        signature.argument = 0;
        for (std::size_t looks = 0; looks < calls_.size(); ++looks) {
            const Seen& each = calls_[next_];
            next_ = (next_ + 1) % calls_.size();
            if (each.signature == signature) { return &each.all; }
        }
        return nullptr;
    }
    void add(Signature signature, bool all) {
        signature.argument = 0;
        calls_.push_back({signature, all});
    }

  private:
    struct Seen {
        Signature signature;
        bool all;
    };
    std::vector<Seen> calls_;
    std::size_t next_ = 0;
};

/// The resources of one lane over one group, so that its collectives do not wait for another lane's.
struct Channel {
    std::uint64_t number = 0;  ///< the same on all members, and unique
    MPI_Comm comm = MPI_COMM_NULL;
    bool owned = false;          ///< the World frees `comm`; not the user's
    std::uint64_t calls = 0;     ///< collectives that this rank has entered
    HostBlock* block = nullptr;  ///< where the members of this host meet, if they share memory
    HostBlock* told = nullptr;  ///< where they tell each other what they have entered: `block`, or one without rounds
    std::atomic<std::uint64_t>* own_told = nullptr;  ///< this rank's entry there

    /// Counts a collective, and returns the number of those before it.
    std::uint64_t enter() noexcept {
        if (own_told != nullptr) { own_told->store(calls + 1, std::memory_order_relaxed); }
        return calls++;
    }

    /// The digest of the call, its complement and a flag, reduced over the ranks. It is a member, because a reduction
    /// that is given up still writes to it.
    std::array<std::uint64_t, 3> digest{};

    /// Returns space for the `count` records of a gather among the ranks; a member for the same reason.
    template <class Record>
    std::span<Record> records(std::size_t count) {
        record_bytes.resize(count * sizeof(Record));
        return {reinterpret_cast<Record*>(record_bytes.data()), count};
    }
    std::vector<std::byte> record_bytes;

    /// All calls, and what is known about their memory, where calls are compared at each step by messages.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    SeenMemory seen;
};

/// A rank's state for one group of ranks, at a stable address.
struct Group {
    std::uint64_t number = 0;  ///< the same on all members, and unique
    std::size_t rank = 0;
    std::vector<std::size_t> world_ranks;
    std::vector<Channel> channels;  ///< one for each lane of the World
    /// Adds the channel of the next lane.
    void add_channel(MPI_Comm comm, bool owned) {
        Channel& added = channels.emplace_back();
        added.number = 2 * number + channels.size() - 1;
        added.comm = comm;
        added.owned = owned;
    }

    /// The members by host, in order, and the place of each one. This rank is at `place` of hosts[host].
    std::vector<std::vector<std::size_t>> hosts;
    struct Home {
        std::size_t host;
        std::size_t place;
    };
    std::vector<Home> homes;
    std::size_t host = 0;
    std::size_t place = 0;
    const std::vector<std::size_t>& neighbours() const noexcept { return hosts[host]; }
    bool spans_hosts() const noexcept { return hosts.size() > 1; }
    bool is_here(std::size_t member) const noexcept { return homes[member].host == host; }
    /// Returns which member of a host receives for all of them what the member at this place of another host sends.
    std::size_t taker(std::size_t of, std::size_t senders_place) const noexcept {
        return hosts[of][senders_place % hosts[of].size()];
    }
    /// Returns whether a member receives what one of another host sends.
    bool takes_from(std::size_t from, std::size_t to) const noexcept {
        return homes[from].host != homes[to].host && taker(homes[to].host, homes[from].place) == to;
    }
    /// Returns whether the members of each host meet in shared memory; this holds in all lanes or in none.
    bool meets_in_memory() const noexcept { return channels.front().block != nullptr; }
    /// Returns whether the comparison of a call needs messages.
    bool compares_by_messages() const noexcept { return size() > 1 && (!meets_in_memory() || spans_hosts()); }
    /// Starts to record calls, for a comparison at each step.
    void trace_calls() {
        if (!compares_by_messages()) { return; }
        for (Channel& channel : channels) { channel.trace = std::make_unique<shardkit::detail::CallTrace>(size()); }
    }
    shared::detail::GroupHandles handles;

    std::size_t size() const noexcept { return world_ranks.size(); }
};

/// One call of a verb on one rank.
struct Call : shardkit::Call {
    World& world;
    Lane& lane;
    Group& group;
    Channel& channel;  ///< the group's channel for this lane
    const std::string& axes;
    std::uint64_t sequence = 0;  ///< number of collectives of the group before this one
    const char* as = nullptr;    ///< what it is called if it is no verb: "World"

    std::string doing() const {
        return as != nullptr ? as : shardkit::detail::concat(name(signature.verb), " over ", axes);
    }
    /// Begin a message of `count` words of `bytes` bytes each, of at most MPI's counts, to or from a member.
    void send(const void* from, std::size_t count, std::size_t bytes, std::size_t to, int tag,
              MPI_Request& request) const;
    void receive(void* to, std::size_t count, std::size_t bytes, std::size_t from, int tag,
                 MPI_Request& request) const;
    /// Takes this thread's turn to call MPI:
    ///     call.mpi().check(MPI_Isend(...), "MPI_Isend");
    /// The turn lasts until the end of the statement. It is taken before the MPI call, as a member function's object
    /// is evaluated before its arguments.
    MpiCall mpi() const;
};

/// A verb's turn to call MPI.
class MpiCall {
  public:
    MpiCall(const Call& call, CallTurns& turns) noexcept : call_(call), turn_(turns) {}
    /// Checks the result of an MPI function.
    /// @throws CommError unless `code` is MPI_SUCCESS
    void check(int code, std::string_view mpi_call) const {
        if (code != MPI_SUCCESS) { mpi::detail::check(code, mpi_call, call_.doing(), call_.where); }
    }

  private:
    const Call& call_;
    CallTurns::Turn turn_;
};

inline void Call::send(const void* from, std::size_t count, std::size_t bytes, std::size_t to, int tag,
                       MPI_Request& request) const {
    mpi().check(
        MPI_Isend(from, static_cast<int>(count), word_type(bytes), static_cast<int>(to), tag, channel.comm, &request),
        "MPI_Isend");
}
inline void Call::receive(void* to, std::size_t count, std::size_t bytes, std::size_t from, int tag,
                          MPI_Request& request) const {
    mpi().check(
        MPI_Irecv(to, static_cast<int>(count), word_type(bytes), static_cast<int>(from), tag, channel.comm, &request),
        "MPI_Irecv");
}

}  // namespace shardkit::mpi::detail
