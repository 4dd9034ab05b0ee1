// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit {

namespace detail {
/// Makes the verbs below of elements whose types are values.
inline void reduce_scatter(const Communicator& comm, ReduceOp op, const host::Reducer& reducer,
                           host::ConstMemory full, host::Memory shard, const Stream& stream,
                           const engine::CallSite& site) {
    check_full(comm, "reduce_scatter", full.count, shard.count, site.where);
    require_tree(comm, op, "reduce_scatter", site.where);
    const Call call = call_of({reducer.in, reducer.out}, Verb::reduce_scatter, full.count, full.bytes(), site, op);
    make_call(comm, call, full.at, shard.at, [=, &reducer, &stream, &call](const host::Verbs& engine) {
        return engine.reduce_scatter(reducer, op, full, shard, stream, call);
    });
}
inline void reduce_scatter_in_place(const Communicator& comm, ReduceOp op, const host::Reducer& reducer,
                                    host::Memory full, const Stream& stream, const engine::CallSite& site) {
    check_multiple(comm, "reduce_scatter_in_place", full.count, site.where);
    require_tree(comm, op, "reduce_scatter_in_place", site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = full.count / comm.size();
    const Call call = call_of({reducer.in, reducer.out}, Verb::reduce_scatter, full.count, full.bytes(), site, op);
    make_call(comm, call, nullptr, full.at, [=, &reducer, &stream, &call](const host::Verbs& engine) {
        return engine.reduce_scatter(reducer, op, full, full.part(engine.rank() * k, k), stream, call);
    });
}
}  // namespace detail

/// Reduces `full` over the ranks; rank r keeps piece r in `shard`.
/// Shapes:  full [size * k], shard [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @post    shard[i] is the reduction over ranks q of rank q's full[rank * k + i]
/// @throws  std::invalid_argument when full is not size times shard, or ranks have no tree; CommError when the engine
///          fails
template <class Full, class Shard>
void reduce_scatter(const Communicator& comm, ReduceOp op, Full&& full, Shard&& shard, const Stream& stream = {},
                    engine::CallSite site = SourceLocation::current()) {
    detail::reduce_scatter(comm, op, detail::reducer_in<Full, Shard>(), detail::verb_input(std::forward<Full>(full)),
                           detail::verb_output(std::forward<Shard>(shard)), stream, site);
}

/// Reduces in place: piece r of rank r's own buffer receives the result; the other pieces keep their values. Over one
/// rank it does nothing.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <class Full>
void reduce_scatter_in_place(const Communicator& comm, ReduceOp op, Full&& full, const Stream& stream = {},
                             engine::CallSite site = SourceLocation::current()) {
    detail::reduce_scatter_in_place(comm, op, detail::reducer_in<Full, Full>(),
                                    detail::verb_output(std::forward<Full>(full)), stream, site);
}

}  // namespace shardkit
