// SPDX-License-Identifier: Apache-2.0
#pragma once

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
inline void all_reduce(const Communicator& comm, ReduceOp op, const host::Reducer& reducer, host::ConstMemory input,
                       host::Memory output, const Stream& stream, const engine::CallSite& site) {
    require_tree(comm, op, "all_reduce", site.where);
    if (input.count != output.count) {
        throw_invalid_argument(site.where, "all_reduce over ", comm.axes(), ": output has ", output.count,
                               " elements, expected ", input.count, " as input has");
    }
    const Call call = call_of({reducer.in, reducer.out}, Verb::all_reduce, input.count, input.bytes(), site, op);
    make_call(comm, call, input.at, output.at, [=, &reducer, &stream, &call](const host::Verbs& engine) {
        return engine.all_reduce(reducer, op, input, output, stream, call);
    });
}
inline void all_reduce_in_place(const Communicator& comm, ReduceOp op, const host::Reducer& reducer,
                                host::Memory values, const Stream& stream, const engine::CallSite& site) {
    if (comm.size() == 1) { return; }
    require_tree(comm, op, "all_reduce_in_place", site.where);
    const Call call = call_of({reducer.in, reducer.out}, Verb::all_reduce, values.count, values.bytes(), site, op);
    make_call(comm, call, nullptr, values.at, [=, &reducer, &stream, &call](const host::Verbs& engine) {
        return engine.all_reduce(reducer, op, values, values, stream, call);
    });
}
/// Reduces in place without a tree.
template <Element T>
void all_reduce_span(const Communicator& comm, TreelessOp op, std::span<T> values, const Stream& stream,
                     const engine::CallSite& site) {
    all_reduce_in_place(comm, op, host::detail::reducer<T, T, false>(), values, stream, site);
}
}  // namespace detail

/// Reduces `input` over the ranks; every rank receives the whole result in `output`.
/// Shapes:  input [k], output [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    2 (size - 1) / size of the bytes moved per rank.
/// @post    output[i] is the reduction over ranks q of rank q's input[i], the same bits on every rank
/// @throws  std::invalid_argument when the sizes differ, or ranks have no tree; CommError when the engine fails
template <class Input, class Output>
void all_reduce(const Communicator& comm, ReduceOp op, Input&& input, Output&& output, const Stream& stream = {},
                engine::CallSite site = SourceLocation::current()) {
    detail::all_reduce(comm, op, detail::reducer_in<Input, Output>(), detail::verb_input(std::forward<Input>(input)),
                       detail::verb_output(std::forward<Output>(output)), stream, site);
}

/// Reduces in place: the result replaces the input. Over one rank it does nothing.
template <class Values>
void all_reduce_in_place(const Communicator& comm, ReduceOp op, Values&& values, const Stream& stream = {},
                         engine::CallSite site = SourceLocation::current()) {
    detail::all_reduce_in_place(comm, op, detail::reducer_in<Values, Values>(),
                                detail::verb_output(std::forward<Values>(values)), stream, site);
}

}  // namespace shardkit
