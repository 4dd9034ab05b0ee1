// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/all_to_all.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/comm/broadcast.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/send_receive.hpp>

#include "rank_checks.hpp"
#include "verb_oracle.hpp"

/// Each verb against the oracle, bit for bit, for any engine; called by every rank of `comm`.
namespace verb_checks {

using rank_checks::expect;
using shardkit::all_gather;
using shardkit::all_gather_in_place;
using shardkit::all_reduce;
using shardkit::all_reduce_in_place;
using shardkit::all_to_all;
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

inline constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};

template <class T>
Guarded<T> input(std::size_t rank, std::size_t size, std::size_t offset) {
    Guarded<T> values(size, offset);
    for (std::size_t i = 0; i < size; ++i) { values[i] = value<T>(rank, i); }
    return values;
}

template <class T, class C>
void check_all_gather(const C& comm, std::size_t k, std::size_t offset) {
    Guarded<T> shard = input<T>(comm.rank(), k, offset);
    Guarded<T> full(comm.size() * k, offset + 1);
    Guarded<T> in_place(comm.size() * k, offset + 2);
    for (std::size_t i = 0; i < k; ++i) { in_place[comm.rank() * k + i] = shard[i]; }
    all_gather(comm, shard.view(), full.span(), {});
    all_gather_in_place(comm, in_place.span(), {});
    for (std::size_t q = 0; q < comm.size(); ++q) {
        for (std::size_t i = 0; i < k; ++i) {
            expect(same_bits(full[q * k + i], value<T>(q, i)), "all_gather of ", k, ", element ", i, " of rank ", q);
            expect(same_bits(in_place[q * k + i], value<T>(q, i)), "all_gather_in_place of ", k, ", element ", i);
        }
    }
    expect(full.margins_intact() && in_place.margins_intact(), "all_gather of ", k, " stays inside its span");
}

template <class In, class Out, class C>
void check_reduce_scatter(const C& comm, std::size_t k, std::size_t offset) {
    const std::size_t begin = comm.rank() * k;
    for (const ReduceOp op : all_ops) {
        Guarded<In> full = input<In>(comm.rank(), comm.size() * k, offset);
        Guarded<Out> shard(k, offset + 1);
        reduce_scatter(comm, op, full.view(), shard.span(), {});
        for (std::size_t i = 0; i < k; ++i) {
            expect(same_bits(shard[i], reduced<In, Out>(op, comm.size(), begin + i)), "reduce_scatter ", name(op),
                   " of ", k, ", element ", i, " on rank ", comm.rank());
        }
        expect(shard.margins_intact(), "reduce_scatter stays inside its span");
        for (std::size_t i = 0; i < comm.size() * k; ++i) {
            expect(same_bits(full[i], value<In>(comm.rank(), i)), "reduce_scatter leaves its input alone");
        }
        if constexpr (std::is_same_v<In, Out>) {
            reduce_scatter_in_place(comm, op, full.span(), {});
            for (std::size_t i = 0; i < comm.size() * k; ++i) {
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
    for (const ReduceOp op : all_ops) {
        Guarded<In> values = input<In>(comm.rank(), count, offset);
        Guarded<Out> result(count, offset + 1);
        all_reduce(comm, op, values.view(), result.span(), {});
        if constexpr (std::is_same_v<In, Out>) { all_reduce_in_place(comm, op, values.span(), {}); }
        for (std::size_t i = 0; i < count; ++i) {
            const Out expected = reduced<In, Out>(op, comm.size(), i);
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
    const std::size_t n = comm.size();
    for (std::size_t root = 0; root < n; ++root) {
        Guarded<T> values = input<T>(comm.rank(), k, offset);
        broadcast(comm, values.span(), root, {});
        for (std::size_t i = 0; i < k; ++i) {
            expect(same_bits(values[i], value<T>(root, i)), "broadcast from ", root, ", element ", i);
        }
        expect(values.margins_intact(), "broadcast stays inside its span");
    }

    Guarded<T> sent = input<T>(comm.rank(), n * k, offset);
    Guarded<T> received(n * k, offset + 1);
    all_to_all(comm, sent.view(), received.span(), {});
    for (std::size_t q = 0; q < n; ++q) {
        for (std::size_t i = 0; i < k; ++i) {
            expect(same_bits(received[q * k + i], value<T>(q, comm.rank() * k + i)), "all_to_all, element ", i);
        }
    }
    expect(received.margins_intact(), "all_to_all stays inside its span");

    for (std::size_t shift = 0; shift < n; ++shift) {  // shift 0: to this rank itself
        const std::size_t from = (comm.rank() + n - shift) % n;
        const Guarded<T> message = input<T>(comm.rank(), k, offset);
        Guarded<T> arrived(k, offset + 3);
        send_receive(comm, message.view(), (comm.rank() + shift) % n, arrived.span(), from, {});
        for (std::size_t i = 0; i < k; ++i) {
            expect(same_bits(arrived[i], value<T>(from, i)), "send_receive by ", shift, ", element ", i);
        }
        expect(arrived.margins_intact(), "send_receive stays inside its span");
    }
    barrier(comm, {});
}

/// A chain from rank 0 to the last, each message twice, the second one element longer.
template <class T, class C>
void check_send_and_receive(const C& comm, std::size_t k) {
    for (std::size_t extra = 0; extra < 2; ++extra) {
        Guarded<T> values = input<T>(0, k + extra, 1);
        Guarded<T> arrived(k + extra, 2);
        if (comm.rank() > 0) { receive(comm, arrived.span(), comm.rank() - 1, {}); }
        if (comm.rank() + 1 < comm.size()) {
            send(comm, comm.rank() == 0 ? values.view() : arrived.view(), comm.rank() + 1, {});
        }
        for (std::size_t i = 0; comm.rank() > 0 && i < k + extra; ++i) {
            expect(same_bits(arrived[i], values[i]), "receive, element ", i);
        }
    }
}

}  // namespace verb_checks
