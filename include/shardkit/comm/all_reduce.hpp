// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Reduces `input` over the ranks; every rank receives the whole result in `output`.
/// Shapes:  input [k], output [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    2 (size - 1) / size of the bytes moved per rank.
/// @post    output[i] is the reduction over ranks q of rank q's input[i], the same bits on every rank
/// @throws  std::invalid_argument when the sizes differ, or ranks have no tree; CommError when the engine fails
template <class Input, class Output, Communicator C>
void all_reduce(const C& comm, ReduceOp op, Input&& input, Output&& output, const AnyStream& stream = {},
                engine::CallSite site = SourceLocation::current()) {
    const auto from = detail::verb_input(std::forward<Input>(input));
    const auto to = detail::verb_output(std::forward<Output>(output));
    detail::require_tree(comm, op, "all_reduce", site.where);
    if (from.size() != to.size()) {
        throw_invalid_argument(site.where, "all_reduce over ", comm.axes(), ": output has ", to.size(),
                               " elements, expected ", from.size(), " as input has");
    }
    const Call call = detail::call_of<detail::ElementIn<Input>, detail::ElementIn<Output>>(
        Verb::all_reduce, from.size(), from.size_bytes(), site, op);
    detail::make_call(comm, call, from.data(), to.data(),
                      [&] { return comm.all_reduce(op, from, to, stream, call); });
}

namespace detail {
/// Reduces in place, with a ReduceOp or a TreelessOp. Apart from the verb, so that `extern template` names it
/// whatever the verb is given.
template <class Op, Element T, Communicator C>
void all_reduce_span(const C& comm, Op op, std::span<T> values, const AnyStream& stream, engine::CallSite site) {
    if (comm.size() == 1) { return; }
    require_tree(comm, op, "all_reduce_in_place", site.where);
    const Call call = call_of<T>(Verb::all_reduce, values.size(), values.size_bytes(), site, op);
    make_call(comm, call, nullptr, values.data(),
              [&] { return comm.all_reduce(op, std::span<const T>(values), values, stream, call); });
}
}  // namespace detail

/// Reduces in place: the result replaces the input. Over one rank it does nothing.
template <class Values, Communicator C>
void all_reduce_in_place(const C& comm, ReduceOp op, Values&& values, const AnyStream& stream = {},
                         engine::CallSite site = SourceLocation::current()) {
    detail::all_reduce_span(comm, op, detail::verb_output(std::forward<Values>(values)), stream, site);
}

}  // namespace shardkit
