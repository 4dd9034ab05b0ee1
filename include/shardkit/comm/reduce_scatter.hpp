// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can reduce-scatter from elements of type In into type Out, adding in Out's arithmetic.
template <class C, class In, class Out>
concept ReduceScatters = Communicator<C> && Element<In> && Element<Out> &&
    requires(const C comm, std::span<const In> full, std::span<Out> shard, std::span<Out> in_place,
             typename C::Stream stream, const Call& call) {
    comm.reduce_scatter(ReduceOp::sum, full, shard, stream, call);
    comm.reduce_scatter_in_place(ReduceOp::sum, in_place, stream, call);
};

namespace detail {
/// Describes the call in which every rank gives `count` elements, all ranks' pieces.
template <class In, class Out>
constexpr Call scatter_call(ReduceOp op, std::size_t count, CallSite site) noexcept {
    return {{Verb::reduce_scatter, element_type_of<In>, element_type_of<Out>, op, site.hash(), count, site.stated},
            count * sizeof(In),
            site.where,
            site.subject};
}
}  // namespace detail

/// Reduces `full` over the ranks; rank r keeps piece r in `shard`.
/// Shapes:  full [size * k], shard [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @post    shard[i] is the reduction over ranks q of rank q's full[rank * k + i]
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <Element In, Element Out, ReduceScatters<In, Out> C>
void reduce_scatter(const C& comm, ReduceOp op, std::span<const In> full, std::span<Out> shard,
                    typename C::Stream stream, CallSite site = SourceLocation::current()) {
    if (full.size() != shard.size() * comm.size()) {
        throw_invalid_argument(site.where, "reduce_scatter over ", comm.axes(), ": full has ", full.size(),
                               " elements, expected ", comm.size(), " ranks x ", shard.size(), " of shard");
    }
    const Call call = detail::scatter_call<In, Out>(op, full.size(), site);
    if (!detail::begin(comm, call, full.data(), shard.data())) { return; }
    if constexpr (KeepsJournal<C>) {
        detail::end(comm, call, full.data(), shard.data(), comm.reduce_scatter(op, full, shard, stream, call));
    } else {
        comm.reduce_scatter(op, full, shard, stream, call);
    }
}

/// Reduces likewise where piece r of rank r's own buffer receives the result; the other pieces keep their values.
/// Over one rank there is nothing to do.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <Element T, ReduceScatters<T, T> C>
void reduce_scatter_in_place(const C& comm, ReduceOp op, std::span<T> full, typename C::Stream stream,
                             CallSite site = SourceLocation::current()) {
    if (full.size() % comm.size() != 0) {
        throw_invalid_argument(site.where, "reduce_scatter_in_place over ", comm.axes(), ": ", full.size(),
                               " elements, expected a multiple of ", comm.size(), " ranks");
    }
    if (comm.size() == 1) { return; }
    const Call call = detail::scatter_call<T, T>(op, full.size(), site);
    if (!detail::begin(comm, call, nullptr, full.data())) { return; }
    if constexpr (KeepsJournal<C>) {
        detail::end(comm, call, nullptr, full.data(), comm.reduce_scatter_in_place(op, full, stream, call));
    } else {
        comm.reduce_scatter_in_place(op, full, stream, call);
    }
}

}  // namespace shardkit
