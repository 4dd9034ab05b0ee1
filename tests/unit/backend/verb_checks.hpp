// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>

#include "rank_checks.hpp"
#include "verb_oracle.hpp"
#include "verb_values.hpp"

/// Each verb against the oracle, bit for bit, for any engine; called by every rank of `comm`.
namespace verb_checks {

using rank_checks::expect;
using shardkit::all_gather;
using shardkit::all_gather_in_place;
using shardkit::all_reduce;
using shardkit::all_reduce_in_place;
using shardkit::all_to_all;
using shardkit::all_to_all_uneven;
using shardkit::barrier;
using shardkit::broadcast;
using shardkit::receive;
using shardkit::reduce_scatter;
using shardkit::reduce_scatter_in_place;
using shardkit::ReduceOp;
using shardkit::send;
using shardkit::send_receive;
using verb_oracle::Guarded;
using verb_oracle::reduced;
using verb_oracle::same_bits;
using verb_oracle::value;
using verb_values::Bench;
using verb_values::input;
using verb_values::Values;

/// The operations that these ranks have.
template <class C>
std::span<const ReduceOp> all_ops(const C& comm) {
    static constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::tree_sum};
    return std::span<const ReduceOp>(ops).first(std::has_single_bit(comm.size()) ? 4 : 3);
}

template <class T>
Guarded<T> input(std::size_t rank, std::size_t size, std::size_t offset) {
    Guarded<T> values(size, offset);
    T* const first = &values[0];
    for (std::size_t i = 0; i < size; ++i) { first[i] = value<T>(rank, i); }
    return values;
}

/// How far apart the elements of so many are that are compared: of a large result in slow builds some at every place
/// of a register.
constexpr std::size_t step_over(std::size_t count) { return rank_checks::sanitized && count > 100'000 ? 7 : 1; }

template <class T, class C>
void check_all_gather(const C& comm, std::size_t k, std::size_t offset) {
    const auto stream = Bench<C>::stream(comm);
    Values<T, C> shard = input<T>(comm, comm.rank(), k, offset);
    Values<T, C> full(comm, comm.size() * k, offset + 1);
    Values<T, C> in_place(comm, comm.size() * k, offset + 2);
    for (std::size_t i = 0; i < k; ++i) { in_place[comm.rank() * k + i] = shard[i]; }
    all_gather(comm, shard.view(), full.span(), stream);
    all_gather_in_place(comm, in_place.span(), stream);
    for (std::size_t q = 0; q < comm.size(); ++q) {
        for (std::size_t i = 0; i < k; i += step_over(k)) {
            expect(same_bits(full[q * k + i], value<T>(q, i)), "all_gather of ", k, ", element ", i, " of rank ", q);
            expect(same_bits(in_place[q * k + i], value<T>(q, i)), "all_gather_in_place of ", k, ", element ", i);
        }
    }
    expect(full.margins_intact() && in_place.margins_intact(), "all_gather of ", k, " stays inside its span");
}

template <class In, class Out, class C>
void check_reduce_scatter(const C& comm, std::size_t k, std::size_t offset) {
    const auto stream = Bench<C>::stream(comm);
    const std::size_t begin = comm.rank() * k;
    for (const ReduceOp op : all_ops(comm)) {
        Values<In, C> full = input<In>(comm, comm.rank(), comm.size() * k, offset);
        Values<Out, C> shard(comm, k, offset + 1);
        reduce_scatter(comm, op, full.view(), shard.span(), stream);
        for (std::size_t i = 0; i < k; i += step_over(k)) {
            expect(same_bits(shard[i], reduced<In, Out>(op, comm.size(), begin + i)), "reduce_scatter ", name(op),
                   " of ", k, ", element ", i, " on rank ", comm.rank());
        }
        expect(shard.margins_intact(), "reduce_scatter stays inside its span");
        for (std::size_t i = 0; i < comm.size() * k; i += step_over(comm.size() * k)) {
            expect(same_bits(full[i], value<In>(comm.rank(), i)), "reduce_scatter leaves its input alone");
        }
        if constexpr (std::is_same_v<In, Out>) {
            reduce_scatter_in_place(comm, op, full.span(), stream);
            for (std::size_t i = 0; i < comm.size() * k; i += step_over(comm.size() * k)) {
                const bool mine = i >= begin && i < begin + k;
                const In expected = mine ? reduced<In, In>(op, comm.size(), i) : value<In>(comm.rank(), i);
                expect(same_bits(full[i], expected), "reduce_scatter_in_place ", name(op), ", element ", i);
            }
            expect(full.margins_intact(), "reduce_scatter_in_place stays inside its span");
        }
    }
}

template <class In, class Out, class C>
void check_all_reduce(const C& comm, std::size_t count, std::size_t offset) {
    const auto stream = Bench<C>::stream(comm);
    for (const ReduceOp op : all_ops(comm)) {
        Values<In, C> values = input<In>(comm, comm.rank(), count, offset);
        Values<Out, C> result(comm, count, offset + 1);
        all_reduce(comm, op, values.view(), result.span(), stream);
        if constexpr (std::is_same_v<In, Out>) { all_reduce_in_place(comm, op, values.span(), stream); }
        for (std::size_t i = 0; i < count; i += step_over(count)) {
            const Out expected = reduced<In, Out>(op, comm.size(), i, Bench<C>::all_reduce_order);
            expect(same_bits(result[i], expected), "all_reduce ", name(op), " of ", count, ", element ", i);
            if constexpr (std::is_same_v<In, Out>) {
                expect(same_bits(values[i], expected), "all_reduce_in_place ", name(op), ", element ", i);
            } else {
                expect(same_bits(values[i], value<In>(comm.rank(), i)), "all_reduce leaves its input alone");
            }
        }
        expect(result.margins_intact() && values.margins_intact(), "all_reduce stays inside its span");
    }
}

template <class T, class C>
void check_copies(const C& comm, std::size_t k, std::size_t offset) {
    const auto stream = Bench<C>::stream(comm);
    const std::size_t n = comm.size();
    for (std::size_t root = 0; root < n; ++root) {
        Values<T, C> values = input<T>(comm, comm.rank(), k, offset);
        broadcast(comm, values.span(), root, stream);
        for (std::size_t i = 0; i < k; i += step_over(k)) {
            expect(same_bits(values[i], value<T>(root, i)), "broadcast from ", root, ", element ", i);
        }
        expect(values.margins_intact(), "broadcast stays inside its span");
    }

    Values<T, C> sent = input<T>(comm, comm.rank(), n * k, offset);
    Values<T, C> received(comm, n * k, offset + 1);
    all_to_all(comm, sent.view(), received.span(), stream);
    for (std::size_t q = 0; q < n; ++q) {
        for (std::size_t i = 0; i < k; i += step_over(k)) {
            expect(same_bits(received[q * k + i], value<T>(q, comm.rank() * k + i)), "all_to_all, element ", i);
        }
    }
    expect(received.margins_intact(), "all_to_all stays inside its span");

    for (std::size_t shift = 0; shift < n; ++shift) {  // shift 0: to this rank itself
        const std::size_t from = (comm.rank() + n - shift) % n;
        Values<T, C> message = input<T>(comm, comm.rank(), k, offset);
        Values<T, C> arrived(comm, k, offset + 3);
        send_receive(comm, message.view(), (comm.rank() + shift) % n, arrived.span(), from, stream);
        for (std::size_t i = 0; i < k; i += step_over(k)) {
            expect(same_bits(arrived[i], value<T>(from, i)), "send_receive by ", shift, ", element ", i);
        }
        expect(arrived.margins_intact(), "send_receive stays inside its span");
    }
    barrier(comm, stream);
}

/// Pieces of different sizes, some of them empty, and among them a rank that sends or receives nothing at all.
template <class T, class C>
void check_uneven(const C& comm, std::size_t k, std::size_t offset) {
    const std::size_t n = comm.size();
    const std::size_t self = comm.rank();
    const auto count = [&](std::size_t from, std::size_t to) {
        return from == 1 || to == 2 || (from + to) % 4 == 3 ? 0 : k * (1 + from) / n + 3 * to;
    };
    const auto begin = [&](std::size_t from, std::size_t to) {
        std::size_t at = 0;
        for (std::size_t q = 0; q < to; ++q) { at += count(from, q); }
        return at;
    };
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
    std::size_t received_of_all = 0;
    for (std::size_t q = 0; q < n; ++q) {
        sends.push_back(count(self, q));
        receives.push_back(count(q, self));
        received_of_all += receives.back();
    }
    Values<T, C> sent = input<T>(comm, self, begin(self, n), offset);
    Values<T, C> received(comm, received_of_all, offset + 1);
    all_to_all_uneven(comm, sent.view(), sends, received.span(), receives, Bench<C>::stream(comm));
    std::size_t at = 0;
    for (std::size_t q = 0; q < n; ++q) {
        for (std::size_t i = 0; i < receives[q]; ++i) {
            expect(same_bits(received[at++], value<T>(q, begin(q, self) + i)), "all_to_all_uneven, element ", i,
                   " of rank ", q);
        }
    }
    expect(received.margins_intact(), "all_to_all_uneven stays inside its span");
}

/// A chain from rank 0 to the last, each message twice, the second one element longer.
template <class T, class C>
void check_send_and_receive(const C& comm, std::size_t k) {
    const auto stream = Bench<C>::stream(comm);
    for (std::size_t extra = 0; extra < 2; ++extra) {
        Values<T, C> values = input<T>(comm, 0, k + extra, 1);
        Values<T, C> arrived(comm, k + extra, 2);
        if (comm.rank() > 0) { receive(comm, arrived.span(), comm.rank() - 1, stream); }
        if (comm.rank() + 1 < comm.size()) {
            send(comm, comm.rank() == 0 ? values.view() : arrived.view(), comm.rank() + 1, stream);
        }
        for (std::size_t i = 0; comm.rank() > 0 && i < k + extra; ++i) {
            expect(same_bits(arrived[i], values[i]), "receive, element ", i);
        }
    }
}

}  // namespace verb_checks
