// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/needs_spans.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can reduce-scatter from elements of type In into type Out, adding in Out's arithmetic. Where
/// they are one type, a shard may lie at its rank's place in `full`.
template <class C, class In, class Out>
concept ReduceScatters = Communicator<C> && Element<In> && Element<Out> &&
    requires(const C comm, std::span<const In> full, std::span<Out> shard, typename C::Stream stream,
             const Call& call) {
    comm.reduce_scatter(ReduceOp::sum, full, shard, stream, call);
};

/// Reduces `full` over the ranks; rank r keeps piece r in `shard`.
/// Shapes:  full [size * k], shard [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @post    shard[i] is the reduction over ranks q of rank q's full[rank * k + i]
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <Element In, Element Out, ReduceScatters<In, Out> C>
void reduce_scatter(const C& comm, ReduceOp op, std::span<const In> full, std::span<Out> shard,
                    typename C::Stream stream, CallSite site = SourceLocation::current()) {
    detail::check_full(comm, "reduce_scatter", full.size(), shard.size(), site.where);
    const Call call = detail::call_of<In, Out>(Verb::reduce_scatter, full.size(), full.size_bytes(), site, op);
    detail::make_call(comm, call, full.data(), shard.data(),
                      [&] { return comm.reduce_scatter(op, full, shard, stream, call); });
}

/// Reduces likewise where piece r of rank r's own buffer receives the result; the other pieces keep their values.
/// Over one rank there is nothing to do.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <Element T, ReduceScatters<T, T> C>
void reduce_scatter_in_place(const C& comm, ReduceOp op, std::span<T> full, typename C::Stream stream,
                             CallSite site = SourceLocation::current()) {
    detail::check_multiple(comm, "reduce_scatter_in_place", full.size(), site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = full.size() / comm.size();
    const std::span<T> shard = full.subspan(comm.rank() * k, k);
    const Call call = detail::call_of<T>(Verb::reduce_scatter, full.size(), full.size_bytes(), site, op);
    detail::make_call(comm, call, nullptr, full.data(),
                      [&] { return comm.reduce_scatter(op, std::span<const T>(full), shard, stream, call); });
}

}  // namespace shardkit
