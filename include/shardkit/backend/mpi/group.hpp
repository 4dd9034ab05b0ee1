// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/turns.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi {
class World;
}

namespace shardkit::mpi::detail {

struct HostBlock;
class Lane;
class MpiCall;

/// Owns an MPI_Comm. Move-only. Freeing is collective, so it is a call and not the destructor's work: an
/// owner that ends without `free`, because its rank fails, leaves the communicator to MPI_Abort.
class OwnedComm {
  public:
    OwnedComm() noexcept = default;
    explicit OwnedComm(MPI_Comm comm) noexcept : comm_(comm) {}
    OwnedComm(OwnedComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
    OwnedComm& operator=(OwnedComm&& other) noexcept {
        std::swap(comm_, other.comm_);
        return *this;
    }
    OwnedComm(const OwnedComm&) = delete;
    OwnedComm& operator=(const OwnedComm&) = delete;
    ~OwnedComm() = default;

    MPI_Comm get() const noexcept { return comm_; }
    /// Frees the communicator, collectively over it. Returns what MPI_Comm_free did.
    int free() noexcept { return comm_ == MPI_COMM_NULL ? MPI_SUCCESS : MPI_Comm_free(&comm_); }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Remembers, of calls that ranks do not compare each time, whether all of them saw their peers' memory when they
/// did.
class SeenMemory {
  public:
    /// Finds the calls of that signature, whatever is stated; null before `add`. Quick in the order of the time
    /// before.
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

/// Holds what the collectives of one lane over one group have of their own, so that they wait for none of another
/// lane's.
struct Channel {
    std::uint64_t number = 0;  ///< the same on all members, and no other channel's
    MPI_Comm comm = MPI_COMM_NULL;
    OwnedComm owned;             ///< `comm`, unless it is the user's
    std::uint64_t calls = 0;     ///< collectives that this rank has entered
    HostBlock* block = nullptr;  ///< where the members of this host meet, if they share its memory

    /// Holds the digest of the call, its complement and a flag, reduced over the ranks. Here, because a reduction
    /// that is given up still writes to it.
    std::array<std::uint64_t, 3> digest{};

    /// Returns room for the `count` records of a gather among the ranks; here for the same reason.
    template <class Record>
    std::span<Record> records(std::size_t count) {
        record_bytes.resize(count * sizeof(Record));
        return {reinterpret_cast<Record*>(record_bytes.data()), count};
    }
    std::vector<std::byte> record_bytes;

    /// Holds all calls and what is known of their memory where calls are compared at each step, by messages.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    SeenMemory seen;
};

/// Holds what a rank keeps for one group of ranks, at an address that stays.
struct Group {
    std::uint64_t number = 0;  ///< the same on all members, and no other group's
    std::size_t rank = 0;
    std::vector<std::size_t> world_ranks;
    std::vector<Channel> channels;  ///< one for each lane of the World
    /// Adds the channel of the next lane, over a communicator of the user's.
    void add_channel(MPI_Comm comm) {
        Channel& added = channels.emplace_back();
        added.number = 2 * number + channels.size() - 1;
        added.comm = comm;
    }
    void add_channel(OwnedComm comm) {
        add_channel(comm.get());
        channels.back().owned = std::move(comm);
    }

    /// Lists the members by host, in their order, and where each of them is; this rank: at `place` of hosts[host].
    std::vector<std::vector<std::size_t>> hosts;
    struct Home {
        std::size_t host;
        std::size_t place;
    };
    std::vector<Home> homes;
    std::size_t host = 0;
    std::size_t place = 0;
    std::size_t taken = 0;  ///< members of other hosts that this rank takes from
    const std::vector<std::size_t>& neighbours() const noexcept { return hosts[host]; }
    bool spans_hosts() const noexcept { return hosts.size() > 1; }
    bool is_here(std::size_t member) const noexcept { return homes[member].host == host; }
    /// Returns the number of members of other hosts.
    std::size_t strangers() const noexcept { return size() - neighbours().size(); }
    /// Returns which member of a host takes for all of them what a member at this place of another one sends.
    std::size_t taker(std::size_t of, std::size_t senders_place) const noexcept {
        return hosts[of][senders_place % hosts[of].size()];
    }
    /// Says whether this rank takes what a member sends.
    bool takes_from(std::size_t member) const noexcept {
        return !is_here(member) && taker(host, homes[member].place) == rank;
    }
    /// Says whether the members of each host meet in its memory; in all lanes or in none.
    bool meets_in_memory() const noexcept { return channels.front().block != nullptr; }
    /// Says whether it takes messages to compare a call.
    bool compares_by_messages() const noexcept { return size() > 1 && (!meets_in_memory() || spans_hosts()); }
    /// Compares from here on what is called, at each step.
    void trace_calls() {
        if (!compares_by_messages()) { return; }
        for (Channel& channel : channels) { channel.trace = std::make_unique<shardkit::detail::CallTrace>(); }
    }
    shared::detail::GroupHandles handles;

    std::size_t size() const noexcept { return world_ranks.size(); }
};

/// Describes one call of a verb on one rank.
struct Call : shardkit::Call {
    World& world;
    Lane& lane;
    Group& group;
    Channel& channel;  ///< the group's for this lane
    const std::string& axes;
    std::uint64_t sequence = 0;  ///< collectives of the group before this one

    std::string doing() const { return shardkit::detail::concat(name(signature.verb), " over ", axes); }
    /// Takes this thread's turn to call MPI:
    ///     call.mpi().check(MPI_Isend(...), "MPI_Isend");
    /// Held until the end of the statement; taken before MPI is called, as a member's arguments come after its
    /// object.
    MpiCall mpi() const;
};

/// Holds a verb's turn to call MPI.
class MpiCall {
  public:
    MpiCall(const Call& call, Turns& turns) noexcept : call_(call), turn_(turns) {}
    /// Checks what an MPI function returned.
    /// @throws CommError unless `code` is MPI_SUCCESS
    void check(int code, std::string_view mpi_call) const {
        if (code != MPI_SUCCESS) { mpi::detail::check(code, mpi_call, call_.doing(), call_.where); }
    }

  private:
    const Call& call_;
    Turns::Turn turn_;
};

}  // namespace shardkit::mpi::detail
