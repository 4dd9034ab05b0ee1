// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can all-gather elements of type T.
template <class C, class T>
concept AllGathers = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream, const Call& call) {
    comm.all_gather(shard, full, stream, call);
    comm.all_gather_in_place(full, stream, call);
};

namespace detail {
/// Describes the call in which every rank gives `k` elements of type T.
template <class T>
constexpr Call gather_call(std::size_t k, std::size_t ranks, CallSite site) noexcept {
    return {{Verb::all_gather, element_type_of<T>, element_type_of<T>, ReduceOp::sum, site.hash(), k, site.stated},
            ranks * k * sizeof(T),
            site.where,
            site.subject};
}
template <class C>
constexpr Moved gathered(const C& comm, const Call& call) {
    return gather_moved(call.payload, comm.size(), {}, host_spread(comm));
}
}  // namespace detail

/// Gathers every rank's shard into `full`, in rank order.
/// Shapes:  shard [k], full [size * k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @pre     same k on all ranks   @post full[r * k, (r + 1) * k) is rank r's shard
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather(const C& comm, std::span<const T> shard, std::span<T> full, typename C::Stream stream,
                CallSite site = SourceLocation::current()) {
    if (full.size() != shard.size() * comm.size()) {
        throw_invalid_argument(site.where, "all_gather over ", comm.axes(), ": full has ", full.size(),
                               " elements, expected ", comm.size(), " ranks x ", shard.size(), " of shard");
    }
    const Call call = detail::gather_call<T>(shard.size(), comm.size(), site);
    if (!detail::begin(comm, call, shard.data(), full.data())) { return; }
    const Moved moved = detail::moved_by([&] { return comm.all_gather(shard, full, stream, call); },
                                         [&] { return detail::gathered(comm, call); });
    detail::end(comm, call, shard.data(), full.data(), moved);
}

/// Gathers likewise where rank r's shard already lies at its place in `full`; over one rank there is nothing to do.
/// Shapes:  full [size * k]; this rank's k elements from rank * k on are the input.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <Element T, AllGathers<T> C>
void all_gather_in_place(const C& comm, std::span<T> full, typename C::Stream stream,
                         CallSite site = SourceLocation::current()) {
    if (full.size() % comm.size() != 0) {
        throw_invalid_argument(site.where, "all_gather_in_place over ", comm.axes(), ": ", full.size(),
                               " elements, expected a multiple of ", comm.size(), " ranks");
    }
    if (comm.size() == 1) { return; }
    const std::size_t k = full.size() / comm.size();
    const Call call = detail::gather_call<T>(k, comm.size(), site);
    if (!detail::begin(comm, call, nullptr, full.data())) { return; }
    const Moved moved = detail::moved_by([&] { return comm.all_gather_in_place(full, stream, call); },
                                         [&] { return detail::gathered(comm, call); });
    detail::end(comm, call, nullptr, full.data(), moved);
}

}  // namespace shardkit
