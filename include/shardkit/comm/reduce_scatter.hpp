// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb_memory.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// Reduces `full` over the ranks; rank r keeps piece r in `shard`.
/// Shapes:  full [size * k], shard [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @post    shard[i] is the reduction over ranks q of rank q's full[rank * k + i]
/// @throws  std::invalid_argument when full is not size times shard, or ranks have no tree; CommError when the engine
///          fails
template <class Full, class Shard, Communicator C>
void reduce_scatter(const C& comm, ReduceOp op, Full&& full, Shard&& shard, const AnyStream& stream = {},
                    engine::CallSite site = SourceLocation::current()) {
    const auto from = detail::verb_input(std::forward<Full>(full));
    const auto to = detail::verb_output(std::forward<Shard>(shard));
    detail::check_full(comm, "reduce_scatter", from.size(), to.size(), site.where);
    detail::require_tree(comm, op, "reduce_scatter", site.where);
    const Call call = detail::call_of<detail::ElementIn<Full>, detail::ElementIn<Shard>>(
        Verb::reduce_scatter, from.size(), from.size_bytes(), site, op);
    detail::make_call(comm, call, from.data(), to.data(),
                      [&] { return comm.reduce_scatter(op, from, to, stream, call); });
}

/// Reduces in place: piece r of rank r's own buffer receives the result; the other pieces keep their values. Over one
/// rank it does nothing.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <class Full, Communicator C>
void reduce_scatter_in_place(const C& comm, ReduceOp op, Full&& full, const AnyStream& stream = {},
                             engine::CallSite site = SourceLocation::current()) {
    using T = detail::ElementIn<Full>;
    const std::span<T> all = detail::verb_output(std::forward<Full>(full));
    detail::check_multiple(comm, "reduce_scatter_in_place", all.size(), site.where);
    detail::require_tree(comm, op, "reduce_scatter_in_place", site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = all.size() / comm.size();
    const std::span<T> shard = all.subspan(comm.rank() * k, k);
    const Call call = detail::call_of<T>(Verb::reduce_scatter, all.size(), all.size_bytes(), site, op);
    detail::make_call(comm, call, nullptr, all.data(),
                      [&] { return comm.reduce_scatter(op, std::span<const T>(all), shard, stream, call); });
}

}  // namespace shardkit
