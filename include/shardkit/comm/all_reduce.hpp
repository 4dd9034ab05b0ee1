// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/cost.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/needs_spans.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can all-reduce from elements of type In into type Out, adding in Out's arithmetic. Where they
/// are one type, input and output may be the same.
template <class C, class In, class Out>
concept AllReduces = Communicator<C> && Element<In> && Element<Out> &&
    requires(const C comm, std::span<const In> input, std::span<Out> output, typename C::Stream stream,
             const Call& call) {
    comm.all_reduce(ReduceOp::sum, input, output, stream, call);
};

/// Reduces `input` over the ranks; every rank receives the whole result in `output`.
/// Shapes:  input [k], output [k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`. Sums are made in Arithmetic<Out> and rounded once.
/// Cost:    2 (size - 1) / size of the bytes moved per rank.
/// @post    output[i] is the reduction over ranks q of rank q's input[i], the same bits on every rank
/// @throws  std::invalid_argument when the sizes differ; CommError when the engine fails
template <Element In, Element Out, AllReduces<In, Out> C>
void all_reduce(const C& comm, ReduceOp op, std::span<const In> input, std::span<Out> output,
                typename C::Stream stream, CallSite site = SourceLocation::current()) {
    if (input.size() != output.size()) {
        throw_invalid_argument(site.where, "all_reduce over ", comm.axes(), ": output has ", output.size(),
                               " elements, expected ", input.size(), " as input has");
    }
    const Call call = detail::call_of<In, Out>(Verb::all_reduce, input.size(), input.size_bytes(), site, op);
    detail::make_call(comm, call, input.data(), output.data(),
                      [&] { return comm.all_reduce(op, input, output, stream, call); });
}

/// Reduces likewise where the result replaces the input; over one rank there is nothing to do.
template <Element T, AllReduces<T, T> C>
void all_reduce_in_place(const C& comm, ReduceOp op, std::span<T> values, typename C::Stream stream,
                         CallSite site = SourceLocation::current()) {
    if (comm.size() == 1) { return; }
    const Call call = detail::call_of<T>(Verb::all_reduce, values.size(), values.size_bytes(), site, op);
    detail::make_call(comm, call, nullptr, values.data(),
                      [&] { return comm.all_reduce(op, std::span<const T>(values), values, stream, call); });
}

}  // namespace shardkit
