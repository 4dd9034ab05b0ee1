// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/communicator.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// The engine behind C can pass elements of type T from one rank to another.
template <class C, class T>
concept SendsAndReceives = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> sent, std::span<T> received, std::size_t peer,
             typename C::Stream stream, SourceLocation where) {
    comm.send(sent, peer, stream, where);
    comm.receive(received, peer, stream, where);
    comm.send_receive(sent, peer, received, peer, stream, where);
};

namespace detail {
template <class C>
void check_peer(const C& comm, std::string_view verb, std::size_t peer, SourceLocation where) {
    if (peer >= comm.size()) {
        throw_invalid_argument(where, verb, " over ", comm.axes(), ": peer ", peer, ", expected a rank below ",
                               comm.size());
    }
}
}  // namespace detail

/// Sends `values` to rank `to`, which must call `receive`. Messages between two ranks keep their order.
/// Order:   stream-ordered; a rendezvous: it completes only once the receiver takes the data, so two ranks
///          that both send first wait for each other: use `send_receive`.
/// @throws  std::invalid_argument when `to` is no rank of `comm`; CommError on failure or when sizes disagree
template <Element T, SendsAndReceives<T> C>
void send(const C& comm, std::span<const T> values, std::size_t to, typename C::Stream stream,
          SourceLocation where = SourceLocation::current()) {
    detail::check_peer(comm, "send", to, where);
    comm.send(values, to, stream, where);
}

/// Receives what rank `from` sends. The element type and count must be the sender's.
template <Element T, SendsAndReceives<T> C>
void receive(const C& comm, std::span<T> values, std::size_t from, typename C::Stream stream,
             SourceLocation where = SourceLocation::current()) {
    detail::check_peer(comm, "receive", from, where);
    comm.receive(values, from, stream, where);
}

/// Sends to one rank and receives from another (or the same) at once, so that a ring of ranks cannot block.
/// Sending to this rank itself is allowed.
template <Element T, SendsAndReceives<T> C>
void send_receive(const C& comm, std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                  typename C::Stream stream, SourceLocation where = SourceLocation::current()) {
    detail::check_peer(comm, "send_receive", to, where);
    detail::check_peer(comm, "send_receive", from, where);
    comm.send_receive(sent, to, received, from, stream, where);
}

}  // namespace shardkit
