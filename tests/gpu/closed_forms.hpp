// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "../unit/backend/rank_checks.hpp"

/// Verbs on small whole numbers, whose sums are exact in every type and every order, as NCCL's order is its own.
/// Every rank of `comm` calls these; they throw where something is wrong.
namespace closed_forms {

namespace sk = shardkit;
using rank_checks::expect;

/// Element i of rank `rank`'s input: at most 4 * 13.
constexpr std::size_t whole(std::size_t rank, std::size_t i) { return (rank + 1) * (i % 13 + 1); }

constexpr std::size_t reduced(sk::ReduceOp op, std::size_t ranks, std::size_t i) {
    const std::size_t sum = ranks * (ranks + 1) / 2;
    const std::size_t most = op == sk::ReduceOp::max ? ranks : 1;
    return (op == sk::ReduceOp::sum ? sum : most) * (i % 13 + 1);
}

template <class T>
T number(std::size_t value) {
    return static_cast<T>(static_cast<sk::Arithmetic<T>>(value));
}

template <class T, class Kernels, class Comm>
class Verbs {
  public:
    explicit Verbs(const Comm& comm) : comm_(comm), stream_(comm.streams().communication) {}

    void check(std::size_t k) const {
        copies(k);
        messages(k);
        for (const sk::ReduceOp op : {sk::ReduceOp::sum, sk::ReduceOp::max, sk::ReduceOp::min}) { reductions(op, k); }
        sk::barrier(comm_, stream_);
        stream_.synchronize();
    }

  private:
    using Buffer = decltype(std::declval<const Comm&>().template buffer<T>(1));

    template <class ValueAt>
    Buffer filled(std::size_t size, ValueAt value_at) const {
        std::vector<T> host(size);
        for (std::size_t i = 0; i < size; ++i) { host[i] = number<T>(value_at(i)); }
        Buffer buffer = comm_.template buffer<T>(size);
        Kernels::copy_in(stream_, std::span<const T>(host), buffer.span());
        return buffer;
    }
    Buffer input(std::size_t rank, std::size_t size) const {
        return filled(size, [rank](std::size_t i) { return whole(rank, i); });
    }
    template <class ValueAt>
    void require(std::string_view verb, std::span<const T> given, ValueAt value_at) const {
        std::vector<T> host(given.size());
        Kernels::copy_out(stream_, given, std::span<T>(host));
        for (std::size_t i = 0; i < host.size(); ++i) {
            expect(host[i] == number<T>(value_at(i)), verb, " of ", host.size(), ", element ", i, " on rank ",
                   comm_.rank());
        }
    }
    static std::span<const T> view(Buffer& buffer) { return buffer.span(); }

    void copies(std::size_t k) const {
        const std::size_t n = comm_.size();
        const std::size_t self = comm_.rank();
        const auto gathered = [k](std::size_t i) { return whole(i / k, i % k); };
        Buffer mine = input(self, k);
        Buffer full = comm_.template buffer<T>(n * k);
        sk::all_gather(comm_, view(mine), full.span(), stream_);
        require("all_gather", full.span(), gathered);
        Buffer in_place =
            filled(n * k, [&](std::size_t i) { return i / k == self ? whole(self, i % k) : std::size_t{0}; });
        sk::all_gather_in_place(comm_, in_place.span(), stream_);
        require("all_gather_in_place", in_place.span(), gathered);
        for (std::size_t root = 0; root < n; ++root) {
            Buffer values = input(self, k);
            sk::broadcast(comm_, values.span(), root, stream_);
            require("broadcast", values.span(), [&](std::size_t i) { return whole(root, i); });
        }
        Buffer sent = input(self, n * k);
        sk::all_to_all(comm_, view(sent), full.span(), stream_);
        require("all_to_all", full.span(), [&](std::size_t i) { return whole(i / k, self * k + i % k); });
        // Odd ranks send k elements to each rank, even ones only to themselves.
        const auto count = [&](std::size_t from, std::size_t to) { return from == to ? k : from % 2 * k; };
        std::vector<std::size_t> sends;
        std::vector<std::size_t> receives;
        std::size_t all_sent = 0;
        std::vector<std::size_t> from;  // by the received element's piece
        for (std::size_t q = 0; q < n; ++q) {
            sends.push_back(count(self, q));
            receives.push_back(count(q, self));
            all_sent += sends.back();
            if (receives.back() > 0) { from.push_back(q); }
        }
        sk::all_to_all_uneven(comm_, view(sent).first(all_sent), sends, full.span().first(from.size() * k), receives,
                              stream_);
        require("all_to_all_uneven", full.span().first(from.size() * k), [&](std::size_t i) {
            const std::size_t q = from[i / k];
            return whole(q, (q % 2 == 1 ? self * k : 0) + i % k);  // an even rank has but its own piece
        });
    }

    void messages(std::size_t k) const {
        const std::size_t n = comm_.size();
        const std::size_t self = comm_.rank();
        for (std::size_t shift = 0; shift < n; ++shift) {
            const std::size_t from = (self + n - shift) % n;
            Buffer sent = input(self, k);
            Buffer received = comm_.template buffer<T>(k);
            sk::send_receive(comm_, view(sent), (self + shift) % n, received.span(), from, stream_);
            require("send_receive", received.span(), [&](std::size_t i) { return whole(from, i); });
        }
        // A chain from the first rank to the last.
        Buffer passed = input(self, k);
        if (self > 0) { sk::receive(comm_, passed.span(), self - 1, stream_); }
        if (self + 1 < n) { sk::send(comm_, view(passed), self + 1, stream_); }
        require("send and receive", passed.span(), [](std::size_t i) { return whole(0, i); });
    }

    void reductions(sk::ReduceOp op, std::size_t k) const {
        const std::size_t n = comm_.size();
        const std::size_t self = comm_.rank();
        const auto all = [&](std::size_t i) { return reduced(op, n, i); };
        const auto own = [&](std::size_t i) { return reduced(op, n, self * k + i); };
        Buffer full = input(self, n * k);
        Buffer shard = comm_.template buffer<T>(k);
        sk::reduce_scatter(comm_, op, view(full), shard.span(), stream_);
        require("reduce_scatter", shard.span(), own);
        sk::reduce_scatter_in_place(comm_, op, full.span(), stream_);
        require("reduce_scatter_in_place", full.span().subspan(self * k, k), own);
        Buffer values = input(self, n * k);
        Buffer result = comm_.template buffer<T>(n * k);
        sk::all_reduce(comm_, op, view(values), result.span(), stream_);
        require("all_reduce", result.span(), all);
        sk::all_reduce_in_place(comm_, op, values.span(), stream_);
        require("all_reduce_in_place", values.span(), all);
    }

    Comm comm_;
    shardkit::Stream stream_;
};

/// Every verb over `comm` and over its even and its odd ranks.
template <class T, class Kernels, class Comm>
void check_verbs(const Comm& comm) {
    const Comm half = sk::split(comm, comm.rank() % 2, comm.rank(), "half");
    for (const std::size_t k : {std::size_t{1}, std::size_t{37}, std::size_t{20011}}) {
        Verbs<T, Kernels, Comm>(comm).check(k);
        Verbs<T, Kernels, Comm>(half).check(k);
    }
}

}  // namespace closed_forms
