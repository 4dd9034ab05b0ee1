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

/// The engine behind C can exchange elements of type T between all pairs of ranks.
template <class C, class T>
concept ExchangesAllToAll = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> sent, std::span<T> received, typename C::Stream stream,
             const Call& call) {
    comm.all_to_all(sent, received, stream, call);
};

/// Sends piece r of `sent` to rank r and receives rank r's piece for this rank as piece r of `received`.
/// Shapes:  sent [size * k], received [size * k]. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`.
/// Cost:    (size - 1) / size of the bytes received per rank.
/// @throws  std::invalid_argument when the sizes differ or size does not divide them; CommError on failure
template <Element T, ExchangesAllToAll<T> C>
void all_to_all(const C& comm, std::span<const T> sent, std::span<T> received, typename C::Stream stream,
                SourceLocation where = SourceLocation::current()) {
    if (sent.size() != received.size() || sent.size() % comm.size() != 0) {
        throw_invalid_argument(where, "all_to_all over ", comm.axes(), ": sends ", sent.size(), " and receives ",
                               received.size(), " elements, expected the same multiple of ", comm.size(), " ranks");
    }
    const Call call = detail::call_of<T>(Verb::all_to_all, sent.size(), sent.size_bytes(), where);
    detail::make_call(
        comm, call, sent.data(), received.data(), [&] { comm.all_to_all(sent, received, stream, call); },
        [&] { return detail::gathered(comm, call); });
}

}  // namespace shardkit
