// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/verb_memory.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::engine {

/// The engine behind C can exchange elements of type T between all pairs of ranks.
template <class C, class T>
concept ExchangesAllToAll = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> sent, std::span<T> received, typename C::Stream stream,
             const Call& call) {
    comm.all_to_all(sent, received, stream, call);
};

}  // namespace shardkit::engine

namespace shardkit {

/// Sends piece r of `sent` to rank r and receives rank r's piece for this rank as piece r of `received`.
/// Shapes:  sent [size * k], received [size * k]. The two must not overlap.
/// Order:   stream-ordered. Collective over `comm`.
/// Cost:    (size - 1) / size of the bytes received per rank.
/// @throws  std::invalid_argument when the sizes differ or size does not divide them; CommError on failure
template <class Sent, class Received, engine::ExchangesAllToAll<detail::ElementIn<Sent>> C>
void all_to_all(const C& comm, Sent&& sent, Received&& received, typename C::Stream stream,
                SourceLocation where = SourceLocation::current()) {
    static_assert(detail::SameElements<Sent, Received>::are_given);
    const auto from = detail::verb_input(std::forward<Sent>(sent));
    const auto to = detail::verb_output(std::forward<Received>(received));
    if (from.size() != to.size() || from.size() % comm.size() != 0) {
        throw_invalid_argument(where, "all_to_all over ", comm.axes(), ": sends ", from.size(), " and receives ",
                               to.size(), " elements, expected the same multiple of ", comm.size(), " ranks");
    }
    const Call call =
        detail::call_of<detail::ElementIn<Sent>>(Verb::all_to_all, from.size(), from.size_bytes(), where);
    detail::make_call(
        comm, call, from.data(), to.data(), [&] { comm.all_to_all(from, to, stream, call); },
        [&] { return detail::gathered(comm, call); });
}
/// The same on the compute stream.
template <class Sent, class Received, engine::HasComputeStream C>
void all_to_all(const C& comm, Sent&& sent, Received&& received,
                detail::CallLine line = detail::CallLine(SourceLocation::current())) {
    all_to_all(comm, std::forward<Sent>(sent), std::forward<Received>(received), comm.compute_stream(), line.where);
}

}  // namespace shardkit
