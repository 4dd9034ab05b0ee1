// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>

namespace benchmarks {

/// Says where results lie: in a buffer of their own, or in the input's.
enum class Placement : std::uint8_t { out_of_place, in_place };

/// Is one collective as one rank sees it, and the numbers that go into it.
/// Values:  element i of world rank w is a pseudo-random whole number that depends on w and i, below 251, or below 8
///          where values are summed: these, and sums over up to 32 ranks, are exact in every element type.
struct Shape {
    std::vector<std::size_t> world_ranks;  ///< of the ranks of this sub-mesh
    std::size_t rank = 0;                  ///< this rank's number in the sub-mesh
    std::size_t piece = 0;                 ///< elements; of one rank where the verb has pieces per rank
    std::size_t root = 0;
    shardkit::ReduceOp op = shardkit::ReduceOp::sum;

    std::size_t ranks() const noexcept { return world_ranks.size(); }
    std::size_t next() const noexcept { return (rank + 1) % ranks(); }
    std::size_t previous() const noexcept { return (rank + ranks() - 1) % ranks(); }

    /// What rank q of this sub-mesh puts in at `index` of a verb that copies.
    std::uint64_t value(std::size_t q, std::size_t index) const noexcept {
        return number(world_ranks[q], index, 251);
    }
    /// The same of a verb that reduces.
    std::uint64_t addend(std::size_t q, std::size_t index) const noexcept {
        return number(world_ranks[q], index, shardkit::detail::adds(op) ? 8 : 251);
    }
    /// All ranks' addends as one.
    std::uint64_t reduced(std::size_t index) const noexcept {
        std::uint64_t result = addend(0, index);
        for (std::size_t q = 1; q < ranks(); ++q) {
            const std::uint64_t other = addend(q, index);
            result = shardkit::detail::adds(op)      ? result + other
                     : op == shardkit::ReduceOp::max ? std::max(result, other)
                                                     : std::min(result, other);
        }
        return result;
    }

  private:
    /// The upper half of a product by an odd number (Knuth, The Art of Computer Programming 3, 6.4), below `range`.
    static std::uint64_t number(std::uint64_t world_rank, std::uint64_t index, std::uint64_t range) noexcept {
        std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U + (world_rank + 1) * 0xd1b54a32d192ed03U;
        mixed = (mixed ^ (mixed >> 29U)) * 0xbf58476d1ce4e5b9U;
        return ((mixed >> 32U) * range) >> 32U;
    }
};

/// Is a value, or none where a buffer holds or keeps what was there before.
using Number = std::optional<std::uint64_t>;
/// Gives element i of a rank's buffer.
using NumberAt = Number (*)(const Shape& shape, std::size_t i);

/// Holds what a rank gives a verb.
template <class C, class T>
struct VerbCall {
    const C& comm;
    const Shape& shape;
    std::span<const T> sent;  ///< empty where results lie in the input's place
    std::span<T> received;
    shardkit::Stream stream;
};

/// Is what measured verbs have in common unless they say otherwise: the base of AllGather, AllReduce and the others,
/// which are verbs V with
///   bus_factor(ranks)          bus bandwidth over algorithm bandwidth, as the page PERFORMANCE of nccl-tests defines
///   copied(placement, ranks)   what each rank has to copy at least, as a multiple of the size: half of what it has
///                              to read and write
///   given, expected            element i of what this rank puts in, and of what it must receive
///   call                       the verb itself, with a VerbCall
/// and, where in_place, the last three with the ending _in_place.
struct MeasuredVerb {
    static constexpr bool out_of_place = true;
    static constexpr bool in_place = false;
    static constexpr bool reduces = false;
    static constexpr bool has_root = false;
    static constexpr bool moves_data = true;

    /// Pieces that the size consists of.
    static std::size_t pieces(std::size_t) { return 1; }
    /// Elements that this rank sends and receives.
    static std::size_t sent(const Shape& s) { return s.piece; }
    static std::size_t received(const Shape& s) { return s.piece; }
};

/// Gathers: every rank receives every rank's piece. Size: the whole; count: a piece.
struct AllGather : MeasuredVerb {
    static constexpr bool in_place = true;

    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    /// The whole is read and written; in place without the own piece.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place ? (ranks - 1) / ranks : 1;
    }

    static std::size_t received(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.value(i / s.piece, i % s.piece); }
    static Number given_in_place(const Shape& s, std::size_t i) {
        return i / s.piece == s.rank ? given(s, i % s.piece) : Number();
    }
    static Number expected_in_place(const Shape& s, std::size_t i) { return expected(s, i); }

    static void call(const auto& c) { shardkit::all_gather(c.comm, c.sent, c.received, c.stream); }
    static void call_in_place(const auto& c) { shardkit::all_gather_in_place(c.comm, c.received, c.stream); }
};

/// Reduces: every rank receives the whole sum.
struct AllReduce : MeasuredVerb {
    static constexpr bool in_place = true;
    static constexpr bool reduces = true;

    static double bus_factor(double ranks) { return 2 * (ranks - 1) / ranks; }
    /// Every input is read once and every output written once. One rank alone leaves what is in place.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place && ranks < 2 ? 0 : 1;
    }

    static Number given(const Shape& s, std::size_t i) { return s.addend(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.reduced(i); }
    static Number given_in_place(const Shape& s, std::size_t i) { return given(s, i); }
    static Number expected_in_place(const Shape& s, std::size_t i) { return expected(s, i); }

    static void call(const auto& c) { shardkit::all_reduce(c.comm, c.shape.op, c.sent, c.received, c.stream); }
    static void call_in_place(const auto& c) {
        shardkit::all_reduce_in_place(c.comm, c.shape.op, c.received, c.stream);
    }
};

/// Exchanges: every rank sends a piece of its own to every rank. Size: what a rank sends in all; count: a piece.
struct AllToAll : MeasuredVerb {
    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    static double copied(Placement, double) { return 1; }

    static std::size_t sent(const Shape& s) { return s.ranks() * s.piece; }
    static std::size_t received(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    /// Piece q is what rank q sends here.
    static Number expected(const Shape& s, std::size_t i) {
        return s.value(i / s.piece, s.rank * s.piece + i % s.piece);
    }

    static void call(const auto& c) { shardkit::all_to_all(c.comm, c.sent, c.received, c.stream); }
};

/// Exchanges: every rank sends a piece to every rank, larger ones to ranks that are farther behind it in a ring: to
/// the d-th one 2 d / ranks of a piece of AllToAll, to itself as much as there. So all ranks send and receive as much
/// as in AllToAll, and the sizes are the same.
class AllToAllUneven : public MeasuredVerb {
  public:
    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return AllToAll::bus_factor(ranks); }
    static double copied(Placement placement, double ranks) { return AllToAll::copied(placement, ranks); }

    static std::size_t sent(const Shape& s) { return AllToAll::sent(s); }
    static std::size_t received(const Shape& s) { return AllToAll::received(s); }
    /// Elements that one rank sends to another.
    static std::size_t count(const Shape& s, std::size_t from, std::size_t to) {
        const std::size_t distance = (to + s.ranks() - from) % s.ranks();
        return distance == 0 ? s.piece : up_to(s, distance) - up_to(s, distance - 1);
    }
    static Number given(const Shape& s, std::size_t i) { return AllToAll::given(s, i); }
    static Number expected(const Shape& s, std::size_t i) {
        std::size_t from = 0;
        for (; i >= count(s, from, s.rank); ++from) { i -= count(s, from, s.rank); }
        for (std::size_t to = 0; to < s.rank; ++to) { i += count(s, from, to); }
        return s.value(from, i);
    }

    void call(const auto& c) {
        for (std::size_t q = sends_.size(); q < c.shape.ranks(); ++q) {
            sends_.push_back(count(c.shape, c.shape.rank, q));
            receives_.push_back(count(c.shape, q, c.shape.rank));
        }
        shardkit::all_to_all_uneven(c.comm, c.sent, sends_, c.received, receives_, c.stream);
    }

  private:
    /// The elements for the ranks behind, up to that distance.
    static std::size_t up_to(const Shape& s, std::size_t distance) {
        return shardkit::detail::part_of(s.piece, distance * (distance + 1), s.ranks());
    }

    std::vector<std::size_t> sends_;
    std::vector<std::size_t> receives_;
};

/// Waits: every rank for every rank; no data, no bandwidth.
struct Barrier : MeasuredVerb {
    static constexpr bool moves_data = false;

    static double bus_factor(double) { return 0; }
    static double copied(Placement, double) { return 0; }

    static std::size_t sent(const Shape&) { return 0; }
    static std::size_t received(const Shape&) { return 0; }
    static Number given(const Shape&, std::size_t) { return {}; }
    static Number expected(const Shape&, std::size_t) { return {}; }

    static void call(const auto& c) { shardkit::barrier(c.comm, c.stream); }
};

/// Broadcasts: every rank receives the root's values, in place only.
struct Broadcast : MeasuredVerb {
    static constexpr bool out_of_place = false;
    static constexpr bool in_place = true;
    static constexpr bool has_root = true;

    static double bus_factor(double) { return 1; }
    /// Every rank but the root reads and writes the whole; the plain copy shares this out among all.
    static double copied(Placement, double ranks) { return (ranks - 1) / ranks; }

    static Number given_in_place(const Shape& s, std::size_t i) {
        return s.rank == s.root ? s.value(s.root, i) : Number();
    }
    static Number expected_in_place(const Shape& s, std::size_t i) { return s.value(s.root, i); }

    static void call_in_place(const auto& c) { shardkit::broadcast(c.comm, c.received, c.shape.root, c.stream); }
};

/// Reduces: every rank receives its piece of the sum. Size: the whole; count: a piece.
struct ReduceScatter : MeasuredVerb {
    static constexpr bool in_place = true;
    static constexpr bool reduces = true;

    static std::size_t pieces(std::size_t ranks) { return ranks; }
    static double bus_factor(double ranks) { return (ranks - 1) / ranks; }
    /// A rank reads its piece of every input, the size of the whole, and writes one piece. One rank alone leaves
    /// what is in place.
    static double copied(Placement placement, double ranks) {
        return placement == Placement::in_place && ranks < 2 ? 0 : (1 + 1 / ranks) / 2;
    }

    static std::size_t sent(const Shape& s) { return s.ranks() * s.piece; }
    static Number given(const Shape& s, std::size_t i) { return s.addend(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.reduced(s.rank * s.piece + i); }
    static Number given_in_place(const Shape& s, std::size_t i) { return given(s, i); }
    /// The other pieces keep their values.
    static Number expected_in_place(const Shape& s, std::size_t i) {
        return i / s.piece == s.rank ? s.reduced(i) : given(s, i);
    }

    static void call(const auto& c) { shardkit::reduce_scatter(c.comm, c.shape.op, c.sent, c.received, c.stream); }
    static void call_in_place(const auto& c) {
        shardkit::reduce_scatter_in_place(c.comm, c.shape.op, c.received, c.stream);
    }
};

/// Sends to the next rank and receives from the previous one, in a ring.
struct SendReceive : MeasuredVerb {
    static double bus_factor(double) { return 1; }
    static double copied(Placement, double) { return 1; }

    static Number given(const Shape& s, std::size_t i) { return s.value(s.rank, i); }
    static Number expected(const Shape& s, std::size_t i) { return s.value(s.previous(), i); }

    static void call(const auto& c) {
        shardkit::send_receive(c.comm, c.sent, c.shape.next(), c.received, c.shape.previous(), c.stream);
    }
};

}  // namespace benchmarks
