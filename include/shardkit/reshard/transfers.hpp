// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/reshard/boxes.hpp>

// Who sends what to whom in a reshard: arithmetic over the boxes of all ranks, without a rank. Every rank computes
// the same.

namespace shardkit::detail {

/// Elements that one rank takes from another one, or from itself. On each side they lie a stride apart.
struct TransferredPiece {
    std::size_t target = 0;  ///< number of the destination's tensor
    std::size_t tensor = 0;  ///< number of the source's; of what is passed on, none: the target's too
    std::size_t count = 0;
    std::size_t from_flat = 0, from_stride = 1;
    std::size_t to_flat = 0, to_stride = 1;
    std::size_t bytes = 0;

    bool contiguous() const noexcept { return count == 1 || (from_stride == 1 && to_stride == 1); }
};

/// Cuts the pieces that one rank sends to another one into messages: small ones are packed together, and each large
/// one is a message of its own, which can be sent from, and received to, the place where it lies.
class MessageCuts {
  public:
    /// Smaller pieces are packed: a copy of them costs less than a message.
    static constexpr std::size_t least_alone = std::size_t{256} << 10U;
    /// Of packed pieces: they stay in a processor's own cache.
    static constexpr std::size_t most_packed = std::size_t{1} << 20U;

    explicit MessageCuts(std::size_t limit) : limit_(std::min(limit, most_packed)) {}

    /// Returns whether the next piece begins a message.
    bool next(const TransferredPiece& piece) noexcept {
        const bool alone = piece.contiguous() && piece.bytes >= least_alone;
        const bool begins = alone || full_ || piece.bytes > limit_ - std::min(filled_, limit_);
        filled_ = begins ? piece.bytes : filled_ + piece.bytes;
        full_ = alone;
        return begins;
    }

  private:
    std::size_t limit_;
    std::size_t filled_ = 0;
    bool full_ = true;
};

/// Calls f(pieces) for each message that is made of `pieces`.
template <class F>
void for_each_message(std::span<const TransferredPiece> pieces, std::size_t limit, F&& f) {
    MessageCuts cuts(limit);
    std::size_t begin = 0;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
        if (!cuts.next(pieces[p]) || p == 0) { continue; }
        f(pieces.subspan(begin, p - begin));
        begin = p;
    }
    if (begin < pieces.size()) { f(pieces.subspan(begin)); }
}

/// Calls f(byte of the file, number of elements, held run, needed run) for the elements that both have, where a run
/// is given from the first of these elements on. @returns the needed ones that are not held. Both are in file order.
template <class F>
List<StoredRun> take_held(const List<StoredRun>& needed, const List<StoredRun>& held, std::size_t size, F&& f) {
    List<StoredRun> left;
    const auto from_on = [&](StoredRun run, std::uint64_t at, std::uint64_t end) {
        run.flat += static_cast<std::size_t>(at - run.at) / size * run.stride;
        run.at = at;
        run.count = static_cast<std::size_t>(end - at) / size;
        return run;
    };
    const StoredRun* next = held.begin();
    for (const StoredRun& run : needed) {
        const std::uint64_t end = run.at + run.count * size;
        for (std::uint64_t at = run.at; at < end;) {
            while (next != held.end() && next->at + next->count * size <= at) { ++next; }
            const std::uint64_t begin = next == held.end() ? end : std::min(std::max(next->at, at), end);
            if (begin > at) { left.push_back(from_on(run, at, begin)); }
            at = begin;
            if (at == end) { break; }
            const std::uint64_t stop = std::min(next->at + next->count * size, end);
            f(from_on(*next, at, stop), from_on(run, at, stop));
            at = stop;
        }
    }
    return left;
}

/// What a plan is made from: the boxes of all ranks. A rank that is not on a side holds nothing of it.
struct ReshardSides {
    Boxes from, to;
    List<List<HeldElements>> from_held;  ///< by rank and by number of the values
    List<List<HeldElements>> to_held;
    List<std::size_t> hosts;        ///< by rank: the number of its host
    List<char> sends;               ///< by rank: whether it is on the source's side
    std::size_t message_limit = 0;  ///< bytes, of a message
};

/// What one rank sends and receives in a row of exchanges, and how many messages all ranks send in it.
class TransferStage {
  public:
    explicit TransferStage(std::size_t ranks = 0) : messages(ranks * ranks), sent(ranks), received(ranks) {}

    List<std::uint64_t> messages;           ///< by source and destination
    List<List<TransferredPiece>> sent;      ///< by this rank, to each rank
    List<List<TransferredPiece>> received;  ///< by this rank, from each rank; what it keeps too
    static constexpr std::size_t nobody = SIZE_MAX;

    /// Finds who meets whom in which round, so that no rank waits for one that is busy with another: in round k, the
    /// i-th rank that sends meets the (i + k)-th one that receives.
    void make_rounds() {
        const std::size_t ranks = sent.size();
        for (std::size_t from = 0; from < ranks; ++from) {
            bool sends = false;
            bool receives = false;
            for (std::size_t to = 0; to < ranks; ++to) {
                sends = sends || messages[from * ranks + to] > 0;
                receives = receives || messages[to * ranks + from] > 0;
            }
            if (sends) { senders_.push_back(from); }
            if (receives) { receivers_.push_back(from); }
        }
    }
    std::size_t rounds() const noexcept { return std::max(senders_.size(), receivers_.size()); }
    /// Return the rank that `rank` sends to in a round, and the one that it receives from; `nobody` for none.
    std::size_t to(std::size_t rank, std::size_t round) const noexcept {
        const std::size_t own = place_in(senders_, rank);
        return own == nobody ? nobody : at(receivers_, own + round);
    }
    std::size_t from(std::size_t rank, std::size_t round) const noexcept {
        const std::size_t own = place_in(receivers_, rank);
        return own == nobody ? nobody : at(senders_, own + rounds() - round);
    }
    /// Returns how many messages are sent one after the other.
    std::uint64_t exchanges() const noexcept {
        std::uint64_t all = 0;
        for (std::size_t round = 0; round < rounds(); ++round) {
            std::uint64_t most = 0;
            for (const std::size_t rank : senders_) {
                const std::size_t receiver = to(rank, round);
                if (receiver != nobody) { most = std::max(most, messages[rank * sent.size() + receiver]); }
            }
            all += most;
        }
        return all;
    }

  private:
    static std::size_t place_in(const List<std::size_t>& list, std::size_t rank) noexcept {
        const std::size_t* const found = std::find(list.begin(), list.end(), rank);
        return found == list.end() ? nobody : static_cast<std::size_t>(found - list.begin());
    }
    std::size_t at(const List<std::size_t>& list, std::size_t place) const noexcept {
        place %= rounds();
        return place < list.size() ? list[place] : nobody;
    }

    List<std::size_t> senders_, receivers_;
};

/// What one rank sends, receives and keeps, and how much all ranks do.
class Transfers {
  public:
    Transfers() = default;
    /// Chooses for each element that a rank needs the rank that it comes from: itself, or else one of its host, or
    /// else one of its host that takes it from another host, or else another; of several alike, the one that sends
    /// least so far.
    /// @throws std::invalid_argument when no rank holds some element
    Transfers(const ReshardSides& sides, std::size_t rank, SourceLocation where)
        : ranks(sides.hosts.size()),
          limit(sides.message_limit),
          bytes(ranks * ranks),
          taken(ranks),
          passed(ranks),
          rank_(rank) {
        Work work{sides, where, {}, {}, List<std::uint64_t>(ranks), List<std::uint64_t>(ranks)};
        for (std::size_t pair = 0; pair < bytes.size(); ++pair) {
            work.taken.emplace_back(limit);
            work.passed.emplace_back(limit);
        }
        find_alike(sides);
        for (std::size_t t = 0; t < sides.to.tensors.size(); ++t) {
            if (is_alike[t] == 0) { place(work, t); }
        }
        taken.make_rounds();
        passed.make_rounds();
    }

    std::size_t ranks = 0;
    std::size_t limit = 0;      ///< bytes of a message
    List<std::uint64_t> bytes;  ///< by source and destination: all that is taken
    TransferStage taken;        ///< from the source's memory
    TransferStage passed;       ///< then, within hosts, from the memory of a destination that has taken it

    /// By target: the next one that takes the same elements as it to the same places, as a parameter and its master
    /// do where the source has one of them; they are taken once. `none` where there is no further one.
    List<std::size_t> next_alike;
    List<char> is_alike;  ///< by target: whether another one is such a one's first
    static constexpr std::size_t none = SIZE_MAX;

    std::size_t pair(std::size_t from, std::size_t to) const noexcept { return from * ranks + to; }
    std::uint64_t messages(std::size_t from, std::size_t to) const noexcept {
        return taken.messages[pair(from, to)] + passed.messages[pair(from, to)];
    }
    /// Returns how many exchanges there are one after the other.
    std::uint64_t rounds() const noexcept { return taken.exchanges() + passed.exchanges(); }

  private:
    /// What grows while tensors are placed.
    struct Work {
        const ReshardSides& sides;
        SourceLocation where;
        List<MessageCuts> taken, passed;  ///< by pair
        List<std::uint64_t> loads;        ///< bytes that each rank sends
        List<std::uint64_t> from_far;     ///< bytes that each rank takes from other hosts
    };

    void find_alike(const ReshardSides& sides) {
        const List<BoxedTensor>& targets = sides.to.tensors;
        next_alike.resize(targets.size());
        is_alike.resize(targets.size());
        List<std::size_t> order;
        for (std::size_t t = 0; t < targets.size(); ++t) {
            order.push_back(t);
            next_alike[t] = none;
        }
        const auto key = [&](std::size_t t) { return std::tuple(targets[t].file, targets[t].begin, t); };
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
        for (std::size_t i = 1; i < order.size(); ++i) {
            const BoxedTensor& one = targets[order[i - 1]];
            const BoxedTensor& other = targets[order[i]];
            bool alike = one.lies_as(other);
            for (std::size_t r = 0; alike && r < ranks; ++r) {
                alike = sides.to_held[r][one.values] == sides.to_held[r][other.values];
            }
            if (!alike) { continue; }
            next_alike[order[i - 1]] = order[i];
            is_alike[order[i]] = 1;
        }
    }
    /// The tensors of the source that have elements of a tensor of the destination: [first, last).
    static IndexRange sources_of(const ReshardSides& sides, const BoxedTensor& needed) {
        const List<BoxedTensor>& tensors = sides.from.tensors;  // in the order of files and bytes
        const BoxedTensor* first = std::lower_bound(
            tensors.begin(), tensors.end(), needed, [](const BoxedTensor& each, const BoxedTensor& wanted) {
                return each.file != wanted.file ? each.file < wanted.file : each.end() <= wanted.begin;
            });
        const BoxedTensor* last = first;
        while (last != tensors.end() && last->file == needed.file && last->begin < needed.end()) { ++last; }
        return {static_cast<std::size_t>(first - tensors.begin()), static_cast<std::size_t>(last - tensors.begin())};
    }
    /// Returns ranks by key(rank).
    template <class Key>
    List<std::size_t> ranks_by(const Key& key) const {
        List<std::size_t> order(ranks);
        for (std::size_t r = 0; r < ranks; ++r) { order[r] = r; }
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
        return order;
    }
    void place(Work& work, std::size_t t) {
        const ReshardSides& sides = work.sides;
        const BoxedTensor& target = sides.to.tensors[t];
        const IndexRange sources = sources_of(sides, target);
        List<List<StoredRun>> held(sources.size() * ranks);
        for (std::size_t r = 0; r < ranks; ++r) {
            if (sides.sends[r] == 0) { continue; }
            for (std::size_t s = sources.begin; s < sources.end; ++s) {
                const BoxedTensor& tensor = sides.from.tensors[s];
                held[(s - sources.begin) * ranks + r] = runs_of(tensor, sides.from_held[r][tensor.values]);
            }
        }
        List<List<StoredRun>> arrived(ranks);  // what each rank takes from other hosts
        for (const std::size_t to :
             ranks_by([&](std::size_t r) { return std::tuple(sides.hosts[r], work.from_far[r], r); })) {
            List<StoredRun> needed = runs_of(target, sides.to_held[to][target.values]);
            if (needed.empty()) { continue; }
            const auto near = [&](std::size_t r) { return sides.hosts[r] == sides.hosts[to]; };
            const List<std::size_t> order = ranks_by([&](std::size_t r) {
                return std::tuple(r == to ? 0 : near(r) ? 1 : 2, work.loads[r], (r + ranks - to) % ranks);
            });
            const auto take = [&](std::size_t from) {
                for (std::size_t s = sources.begin; s < sources.end; ++s) {
                    const List<StoredRun>& theirs = held[(s - sources.begin) * ranks + from];
                    if (theirs.empty()) { continue; }
                    needed = take_held(needed, theirs, target.size,
                                       [&](const StoredRun& source, const StoredRun& destination) {
                                           add(work, taken, {t, s, from, to, target.size}, source, destination);
                                       });
                }
            };
            for (const std::size_t from : order) {
                if (near(from)) { take(from); }
            }
            for (const std::size_t from : order) {
                if (!near(from) || arrived[from].empty()) { continue; }
                needed = take_held(needed, arrived[from], target.size,
                                   [&](const StoredRun& source, const StoredRun& destination) {
                                       for (std::size_t each = t; each != none; each = next_alike[each]) {
                                           add(work, passed, {each, none, from, to, sides.to.tensors[each].held},
                                               source, destination);
                                       }
                                   });
            }
            arrived[to] = needed;
            for (const std::size_t from : order) {
                if (!near(from)) { take(from); }
            }
            if (!needed.empty()) {
                throw_invalid_argument(work.where, "reshard: no rank of the source has all elements of '",
                                       sides.to.names[t], "': expected the source of every rank that has one");
            }
        }
    }
    struct Taken {
        std::size_t target, tensor, from, to;
        std::size_t size;  ///< of an element on its way
    };
    void add(Work& work, TransferStage& stage, const Taken& by, const StoredRun& source,
             const StoredRun& destination) {
        const std::size_t at = pair(by.from, by.to);
        const std::size_t most = std::max<std::size_t>(limit / by.size, 1);
        for (std::size_t done = 0; done < source.count; done += most) {
            const std::size_t count = std::min(most, source.count - done);
            const TransferredPiece piece{by.target,
                                         by.tensor,
                                         count,
                                         source.flat + done * source.stride,
                                         source.stride,
                                         destination.flat + done * destination.stride,
                                         destination.stride,
                                         count * by.size};
            bytes[at] += piece.bytes;
            if (by.from != by.to) {
                work.loads[by.from] += piece.bytes;
                if (work.sides.hosts[by.from] != work.sides.hosts[by.to]) { work.from_far[by.to] += piece.bytes; }
                MessageCuts& cuts = (&stage == &passed ? work.passed : work.taken)[at];
                stage.messages[at] += cuts.next(piece) ? 1U : 0U;
            }
            if (by.from == rank_ && by.to != rank_) { stage.sent[by.to].push_back(piece); }
            if (by.to == rank_) { stage.received[by.from].push_back(piece); }
        }
    }

    std::size_t rank_ = 0;
};

}  // namespace shardkit::detail
