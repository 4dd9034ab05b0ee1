// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/comm/communicator.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can all-gather elements of type T.
template <class C, class T>
concept AllGathers = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream,
             SourceLocation where) {
    comm.all_gather(shard, full, stream, where);
    comm.all_gather_in_place(full, stream, where);
};

/// Gathers every rank's shard into `full`, in rank order.
/// Shapes:  shard [k], full [size * k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @pre     same k on all ranks   @post full[r * k, (r + 1) * k) is rank r's shard
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather(const C& comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream,
                SourceLocation where = SourceLocation::current()) {
    if (full.size() != shard.size() * comm.size()) {
        throw_invalid_argument(where, "all_gather over ", comm.axes(), ": full has ", full.size(),
                               " elements, expected ", comm.size(), " ranks x ", shard.size(), " of shard");
    }
    comm.all_gather(shard, full, stream, where);
}

/// The same where rank r's shard already lies at its place in `full`; over one rank there is nothing to do.
/// Shapes:  full [size * k]; this rank's k elements from rank * k on are the input.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather_in_place(const C& comm, std::span<T> full, typename C::Stream stream,
                         SourceLocation where = SourceLocation::current()) {
    if (full.size() % comm.size() != 0) {
        throw_invalid_argument(where, "all_gather_in_place over ", comm.axes(), ": ", full.size(),
                               " elements, expected a multiple of ", comm.size(), " ranks");
    }
    if (comm.size() > 1) { comm.all_gather_in_place(full, stream, where); }
}

}  // namespace shardkit
