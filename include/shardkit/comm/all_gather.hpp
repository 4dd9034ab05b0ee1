// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/verb_memory.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// Gathers every rank's shard into `full`, in rank order.
/// Shapes:  shard [k], full [size * k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @pre     same k on all ranks   @post full[r * k, (r + 1) * k) is rank r's shard
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <class Shard, class Full, Communicator C>
void all_gather(const C& comm, Shard&& shard, Full&& full, const AnyStream& stream = {},
                engine::CallSite site = SourceLocation::current()) {
    static_assert(detail::SameElements<Shard, Full>::are_given);
    const auto from = detail::verb_input(std::forward<Shard>(shard));
    const auto to = detail::verb_output(std::forward<Full>(full));
    detail::check_full(comm, "all_gather", to.size(), from.size(), site.where);
    const Call call = detail::call_of<detail::ElementIn<Shard>>(Verb::all_gather, from.size(), to.size_bytes(), site);
    detail::make_call(comm, call, from.data(), to.data(), [&] { return comm.all_gather(from, to, stream, call); });
}

/// Gathers in place: rank r's shard is already at its place in `full`. Over one rank it does nothing.
/// Shapes:  full [size * k]; this rank's k elements from rank * k on are the input.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <class Full, Communicator C>
void all_gather_in_place(const C& comm, Full&& full, const AnyStream& stream = {},
                         engine::CallSite site = SourceLocation::current()) {
    using T = detail::ElementIn<Full>;
    const std::span<T> all = detail::verb_output(std::forward<Full>(full));
    detail::check_multiple(comm, "all_gather_in_place", all.size(), site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = all.size() / comm.size();
    const std::span<const T> shard = all.subspan(comm.rank() * k, k);
    const Call call = detail::call_of<T>(Verb::all_gather, k, all.size_bytes(), site);
    detail::make_call(comm, call, nullptr, all.data(), [&] { return comm.all_gather(shard, all, stream, call); });
}

}  // namespace shardkit
