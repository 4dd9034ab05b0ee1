// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// Calls f(offset, count) for consecutive pieces of [0, count) that fit MPI's counts; never if `count` is 0.
template <class F>
void for_each_piece(const Call& call, std::size_t count, F f) {
    const std::size_t most = call.world.options().message_elements;
    for (std::size_t at = 0; at < count; at += most) { f(at, static_cast<int>(std::min(most, count - at))); }
}

/// Sends the memory outgoing(q) to every other rank q, and receives into the memory incoming(q) from it, piece by
/// piece. Memory of no elements is no message.
template <class Outgoing, class Incoming>
void exchange_pieces(const Call& call, Outgoing outgoing, Incoming incoming) {
    const std::size_t ranks = call.group.size();
    const std::size_t most = call.world.options().message_elements;
    std::size_t longest = 0;
    for (std::size_t q = 0; q < ranks; ++q) {
        if (q != call.group.rank) {
            longest = std::max<std::size_t>({longest, outgoing(q).count, incoming(q).count});
        }
    }
    constexpr int tag = 0;
    for (std::size_t at = 0; at < longest; at += most) {
        const auto size_of = [&](std::size_t all) { return std::min(most, all - std::min(all, at)); };
        std::size_t used = 0;
        const auto requests = call.lane.requests();
        for (std::size_t step = 1; step < ranks; ++step) {
            const std::size_t from = (call.group.rank + ranks - step) % ranks;
            const std::size_t to = (call.group.rank + step) % ranks;
            const host::Memory in = incoming(from);
            const host::ConstMemory out = outgoing(to);
            if (const std::size_t size = size_of(in.count); size > 0) {
                call.receive(in.at + at * in.size, size, in.size, from, tag, requests[used++]);
            }
            if (const std::size_t size = size_of(out.count); size > 0) {
                call.send(out.at + at * out.size, size, out.size, to, tag, requests[used++]);
            }
        }
        call.lane.await(call, requests.first(used));
    }
}

using shardkit::detail::CallRecord;

/// Throws an error with the call of every rank, which the ranks exchange. Collective.
/// @throws CommError, always
[[noreturn]] inline void throw_disagreement(const Call& call) {
    const CallRecord own(call, call.sequence);
    const std::vector<CallRecord> all = call.lane.gather(call, own);
    throw CommError(
        "mpi", call.doing(),
        shardkit::detail::disagreement(
            shardkit::detail::concat(" in call ", call.sequence), all,
            shardkit::detail::first_apart(all) % all.size(),
            [&](std::size_t rank) { return call.group.world_ranks[rank]; }, own, call.world.journal().statements(),
            [&](const auto& value) { return call.lane.gather(call, value); }),
        call.where);
}

/// Returns when all ranks of the group have made a call at this place: whether `flag` is true on all of them, or
/// nothing when the calls disagree. @pre `call` has its sequence number
/// Cost:    an all-reduce of 24 bytes
/// @throws  PeerError when a rank has returned
inline std::optional<bool> agree(const Call& call, bool flag) {
    auto& digest = call.channel.digest;
    const std::uint64_t own = shardkit::detail::call_hash(call.signature, call.sequence);
    digest = {own, ~own, flag ? 1U : 0U};
    call.lane.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, digest.data(), static_cast<int>(digest.size()), MPI_UINT64_T, MPI_BAND,
                              call.channel.comm, request);
    });
    // A bit that differs between two ranks is zero in both conjunctions.
    if ((digest[0] | digest[1]) != ~std::uint64_t{0}) { return std::nullopt; }
    return digest[2] != 0;
}

/// Returns the sum of every rank's number, modulo 2^64. Collective.
inline std::uint64_t sum(const Call& call, std::uint64_t own) {
    std::uint64_t& all = call.channel.digest.front();
    all = own;
    call.lane.complete(call, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_UINT64_T, MPI_SUM, call.channel.comm, request);
    });
    return all;
}

/// Compares the calls, and returns whether `flag` is true on all ranks.
/// @throws CommError, on all ranks, when the calls disagree
inline bool compare(const Call& call, bool flag) {
    const std::optional<bool> all = agree(call, flag);
    if (!all) { throw_disagreement(call); }
    return *all;
}

/// Begins every collective of ranks that compare calls by messages, as Options::compare_calls says.
/// `sees` says whether this rank's host sees the memory that it needs. Returns whether all do.
/// @throws  CommError like compare; also when this host no longer sees memory that all saw the first time
inline bool begin(const Call& call, bool sees) {
    Channel& channel = call.channel;
    const CompareCalls when = call.world.options().compare_calls;
    const bool shares = channel.block != nullptr;
    if (when == CompareCalls::off && !shares) { return true; }
    if (when != CompareCalls::each_step) { return compare(call, sees); }
    channel.trace->add(call);
    if (!shares) { return true; }
    if (call.subject == nullptr) { return compare(call, sees); }
    if (const bool* const all = channel.seen.find(call.signature)) {
        if (*all && !sees) {
            throw CommError(
                "mpi", call.doing(),
                shardkit::detail::concat("this call for ", call.subject->text,
                                         " is made with memory that the ranks of its host do not see, and "
                                         "was not the first time: with CompareCalls::each_step no other "
                                         "rank expects that"),
                call.where);
        }
        return *all;
    }
    const bool all = compare(call, sees);
    channel.seen.add(call.signature, all);
    return all;
}

/// Compares the calls that the ranks of the group have made over it since the last time, in every lane. No lane may
/// have work in progress.
/// @throws CommError, on all ranks, which names two of them and the first call in which they differ
inline void compare_steps(Call& call) {
    call.sequence = call.channel.enter();
    std::uint64_t balance = 0;
    bool uneven = false;  // the same on all ranks that made the same calls
    for (const Channel& channel : call.group.channels) {
        const auto& state = channel.trace->state();
        balance = balance * 31 + state.balance;
        uneven = uneven || channel.trace->uneven() > 0;
        call.signature.argument = (call.signature.argument ^ state.hash) * 31 + state.count;
    }
    if (agree(call, true) && (!uneven || sum(call, balance) == 0)) { return; }
    for (Channel& channel : call.group.channels) {
        const auto trace =
            std::exchange(channel.trace, std::make_unique<shardkit::detail::CallTrace>(call.group.size()));
        const auto differs = shardkit::detail::find_disagreement(
            *trace, call.world.journal(), [&](const auto& value) { return call.lane.gather(call, value); });
        if (differs) {
            throw CommError("mpi", shardkit::detail::concat("compare_calls over ", call.axes), *differs, call.where);
        }
    }
    throw_disagreement(call);
}

/// A rank's seat among the ranks of one host.
class Seat {
  public:
    using Member = detail::Member;
    using Word = ProcessWord;

    /// Takes the seat of a call in its host's block.
    /// @pre `call`, of a group with a block, outlives the seat
    explicit Seat(const Call& call) noexcept : call_(call), block_(*call.channel.block) {}

    std::size_t rank() const noexcept { return call_.group.place; }
    std::size_t size() const noexcept { return call_.group.neighbours().size(); }
    Member* members() const noexcept { return block_.members(); }
    Word& word() const noexcept { return block_.word; }
    template <class P>
    P* at(std::size_t member, P* address) const noexcept {
        return member == rank() ? address : static_cast<P*>(find(member, address, 0));
    }
    bool sees(std::size_t member, const void* address) const noexcept { return find(member, address, 0) != nullptr; }
    /// Returns the address at which this rank finds a member's memory; null if the member's window does not have it.
    void* find(std::size_t member, const void* address, std::size_t bytes) const noexcept {
        return call_.world.host().find(call_.group.world_ranks[call_.group.neighbours()[member]], address, bytes);
    }

    void wait(const shardkit::Call&, std::uint32_t target) const { call_.lane.await_entry(call_, target); }
    [[noreturn]] void refuse(const shardkit::Call&) const { call_.lane.throw_given_up(call_); }
    void wait_for_exit(const shardkit::Call&, std::uint32_t target) const { call_.lane.await_exit(call_, target); }
    /// Returns nothing: the peers published their own addresses, so they exchange their calls again as text.
    template <class Disagreement>
    std::nullptr_t explain(const Disagreement&) const noexcept {
        return nullptr;
    }
    template <class Disagreement>
    [[noreturn]] void throw_disagreement(const Disagreement&, std::nullptr_t) const {
        detail::throw_disagreement(call_);
    }

  private:
    const Call& call_;
    HostBlock& block_;
};

using Round = shared::detail::Round<Seat>;

/// How a call's data travels where its ranks are not all in one host whose memory they read: by messages to all other
/// ranks or, with a round of the ranks of this host that read each other's memory, to one rank of each other host.
struct Messages {
    const Call& call;
    Round* round = nullptr;

    /// Returns whether this rank reads a member's memory, perhaps its own.
    bool reads(std::size_t member) const noexcept { return round != nullptr && call.group.is_here(member); }
    /// Returns a member's input, or null if this rank does not read it.
    const std::byte* input(std::size_t member) const noexcept {
        return reads(member) ? round->input(call.group.homes[member].place) : nullptr;
    }
    /// Returns whether a member sends what is for all others to this one.
    bool passes(std::size_t from, std::size_t to) const noexcept {
        return round == nullptr ? from != to : call.group.takes_from(from, to);
    }
    /// Waits until the ranks that read each other's memory are here.
    void meet() const {
        if (round != nullptr) { round->meet(); }
    }
};

/// Returns, equally on all of them, whether every rank of this host sees what every other one reads and writes.
inline bool is_visible(const Seat& seat, const Round& round, std::size_t bytes, bool outputs) noexcept {
    if (round.carried() || round.size() == 1) { return true; }
    for (std::size_t q = 0; q < round.size(); ++q) {
        const auto& theirs = round.call(q);
        if (seat.find(q, theirs.input, bytes) == nullptr) { return false; }
        if (outputs && theirs.output != nullptr && seat.find(q, theirs.output, 0) == nullptr) { return false; }
    }
    return true;
}

/// Returns whether this host's ranks made calls on the same data; other differences are found when calls are
/// compared.
inline bool agreed_but_for_statements(const Round& round) noexcept {
    const Signature& first = round.call(0).signature;
    for (std::size_t q = 0; q < round.size(); ++q) {
        const Signature& theirs = round.call(q).signature;
        if (!(theirs == first) && !shardkit::detail::differ_in_statements(theirs, first)) { return false; }
    }
    return true;
}

/// The memory of this rank that peers read and write.
struct Shown {
    const void* input = nullptr;
    std::size_t bytes = 0;
    void* output = nullptr;
};

/// Runs a collective that shows its memory. It moves the data by in_one_host(round) between ranks of one host that
/// see it, otherwise by by_messages(messages). Without the first, a null pointer, it always uses messages.
template <class InOneHost, class ByMessages>
void collective(Call& call, const Shown& shown, const InOneHost& in_one_host, const ByMessages& by_messages) {
    constexpr bool reads_peers = !std::is_null_pointer_v<InOneHost>;
    call.sequence = call.channel.enter();
    if (call.channel.block == nullptr) {
        if (call.group.size() > 1) { begin(call, true); }
    } else {
        const Seat seat(call);
        Round round(seat, call, shown.input, shown.bytes, shown.output);
        const bool spans = call.group.spans_hosts();
        if (!spans && !round.agreed()) { round.leave_and_throw(); }
        bool visible = (round.agreed() || agreed_but_for_statements(round)) && reads_peers &&
                       is_visible(seat, round, shown.bytes, spans || call.signature.verb == Verb::all_reduce);
        if (spans) { visible = begin(call, visible) && !round.carried(); }
        if constexpr (reads_peers) {
            if (visible) {
                if (spans) {
                    by_messages(Messages{call, &round});
                } else {
                    in_one_host(round);
                }
                round.leave();
                return;
            }
        }
    }
    by_messages(Messages{call});
}

}  // namespace shardkit::mpi::detail
