// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit {

/// Names one tensor of a list that a verb takes: what this rank gives, and where its result goes.
template <Element In, Element Out = In>
struct ListedTensor {
    std::span<const In> from;
    std::span<Out> to;
};

}  // namespace shardkit

namespace shardkit::engine {

/// The engine can start the verbs of a list together, which costs one launch in place of one for each;
/// `reduces_at_once` says of which types and operations it can start reductions so.
template <class C>
concept StartsTogether = Communicator<C> &&
    requires(const C& comm, const typename C::Stream& stream, const Call& call, void (&body)()) {
    comm.start_together(stream, call, body);
};

}  // namespace shardkit::engine

namespace shardkit {

namespace detail {

/// Calls `each` for every tensor of a list, together where the engine can and `possible` says so.
template <class C, class List, class Each>
void call_each(const C& comm, Verb verb, bool possible, List list, const typename C::Stream& stream,
               engine::CallSite site, const Each& each) {
    const auto all = [&] {
        for (const auto& tensor : list) { each(tensor); }
    };
    if constexpr (engine::StartsTogether<C>) {
        if (possible && list.size() > 1) {
            comm.start_together(stream, Call{{.verb = verb}, 0, site.where, site.subject}, all);
            return;
        }
    }
    all();
}

template <class In, class Out, class C>
bool reduces_at_once([[maybe_unused]] const C& comm, [[maybe_unused]] ReduceOp op) {
    if constexpr (engine::StartsTogether<C>) {
        return comm.template reduces_at_once<In, Out>(op);
    } else {
        return false;
    }
}

}  // namespace detail

/// Gathers every tensor of a list, as all_gather does one: `from` is this rank's shard, `to` the whole.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`; one list on all
///          ranks.
/// Cost:    an all_gather for each tensor. NCCL starts them together (ncclGroupStart, ncclGroupEnd): one launch.
/// @throws  what all_gather throws; no later tensor was called then
template <Element T, engine::AllGathers<T> C>
void all_gather_list(const C& comm, std::span<const ListedTensor<T>> list, typename C::Stream stream,
                     engine::CallSite site = SourceLocation::current()) {
    detail::call_each(comm, Verb::all_gather, true, list, stream, site,
                      [&](const ListedTensor<T>& tensor) { all_gather(comm, tensor.from, tensor.to, stream, site); });
}

/// Reduces every tensor of a list, as reduce_scatter does one: `from` is the whole, `to` this rank's piece.
/// Order:   stream-ordered. Collective over `comm`, with the same list on all ranks.
/// Cost:    a reduce_scatter for each tensor. NCCL starts them together where it adds in the elements' own type:
///          fp32, fp64 and integers; 16-bit sums, maxima and minima of floating elements, and all of a World whose
///          sums may be exchanges, are called one by one.
/// @throws  what reduce_scatter throws; no later tensor was called then
template <Element In, Element Out, engine::ReduceScatters<In, Out> C>
void reduce_scatter_list(const C& comm, ReduceOp op, std::span<const ListedTensor<In, Out>> list,
                         typename C::Stream stream, engine::CallSite site = SourceLocation::current()) {
    detail::call_each(
        comm, Verb::reduce_scatter, detail::reduces_at_once<In, Out>(comm, op), list, stream, site,
        [&](const ListedTensor<In, Out>& tensor) { reduce_scatter(comm, op, tensor.from, tensor.to, stream, site); });
}

/// Reduces every tensor of a list, as all_reduce does one: `to` receives the whole sum.
/// Order:   stream-ordered. Collective over `comm`, with the same list on all ranks.
/// Cost:    an all_reduce for each tensor, started together where reduce_scatter_list's are.
/// @throws  what all_reduce throws; no later tensor was called then
template <Element In, Element Out, engine::AllReduces<In, Out> C>
void all_reduce_list(const C& comm, ReduceOp op, std::span<const ListedTensor<In, Out>> list,
                     typename C::Stream stream, engine::CallSite site = SourceLocation::current()) {
    detail::call_each(
        comm, Verb::all_reduce, detail::reduces_at_once<In, Out>(comm, op), list, stream, site,
        [&](const ListedTensor<In, Out>& tensor) { all_reduce(comm, op, tensor.from, tensor.to, stream, site); });
}

}  // namespace shardkit
