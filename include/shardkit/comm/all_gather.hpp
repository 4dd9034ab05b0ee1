// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/needs_spans.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can all-gather elements of type T. A shard may lie at its rank's place in `full`.
template <class C, class T>
concept AllGathers = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream, const Call& call) {
    comm.all_gather(shard, full, stream, call);
};

/// Gathers every rank's shard into `full`, in rank order.
/// Shapes:  shard [k], full [size * k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @pre     same k on all ranks   @post full[r * k, (r + 1) * k) is rank r's shard
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather(const C& comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream,
                CallSite site = SourceLocation::current()) {
    detail::check_full(comm, "all_gather", full.size(), shard.size(), site.where);
    const Call call = detail::call_of<T>(Verb::all_gather, shard.size(), full.size_bytes(), site);
    detail::make_call(
        comm, call, shard.data(), full.data(), [&] { return comm.all_gather(shard, full, stream, call); },
        [&] { return detail::gathered(comm, call); });
}

/// Gathers likewise where rank r's shard already lies at its place in `full`; over one rank there is nothing to do.
/// Shapes:  full [size * k]; this rank's k elements from rank * k on are the input.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather_in_place(const C& comm, std::span<T> full, typename C::Stream stream,
                         CallSite site = SourceLocation::current()) {
    detail::check_multiple(comm, "all_gather_in_place", full.size(), site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = full.size() / comm.size();
    const std::span<const T> shard = full.subspan(comm.rank() * k, k);
    const Call call = detail::call_of<T>(Verb::all_gather, k, full.size_bytes(), site);
    detail::make_call(
        comm, call, nullptr, full.data(), [&] { return comm.all_gather(shard, full, stream, call); },
        [&] { return detail::gathered(comm, call); });
}

}  // namespace shardkit
