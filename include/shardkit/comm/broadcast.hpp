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

/// Copies rank `root`'s values to every rank.
/// Shapes:  values [k], the same k on all ranks.   Order: stream-ordered. Collective over `comm`.
/// Cost:    every other rank receives the bytes of `values` once.
/// @throws  std::invalid_argument when root is no rank of `comm`; CommError when the engine fails
template <class Values, Communicator C>
void broadcast(const C& comm, Values&& values, std::size_t root, const AnyStream& stream = {},
               SourceLocation where = SourceLocation::current()) {
    using T = detail::ElementIn<Values>;
    const std::span<T> all = detail::verb_output(std::forward<Values>(values));
    detail::check_rank(comm, "broadcast", "root", root, where);
    const Call call = detail::call_of<T>(Verb::broadcast, all.size(), all.size_bytes(), {where, nullptr, root});
    detail::make_call(comm, call, nullptr, all.data(), [&] { return comm.broadcast(all, root, stream, call); });
}

}  // namespace shardkit
