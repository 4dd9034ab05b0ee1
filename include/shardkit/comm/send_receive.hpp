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

/// The engine behind C can pass elements of type T from one rank to another.
template <class C, class T>
concept SendsAndReceives = Communicator<C> && Element<T> &&
    requires(const C comm, std::span<const T> sent, std::span<T> received, std::size_t peer,
             typename C::Stream stream, const Call& call) {
    comm.send(sent, peer, stream, call);
    comm.receive(received, peer, stream, call);
    comm.send_receive(sent, peer, received, peer, stream, call);
};

/// Sends `values` to rank `to`, which must call `receive`. Messages between two ranks keep their order.
/// Order:   stream-ordered; a rendezvous: it completes only once the receiver takes the data, so two ranks
///          that both send first wait for each other: use `send_receive`.
/// @throws  std::invalid_argument when `to` is no rank of `comm`; CommError on failure or when sizes disagree
template <Element T, SendsAndReceives<T> C>
void send(const C& comm, std::span<const T> values, std::size_t to, typename C::Stream stream,
          SourceLocation where = SourceLocation::current()) {
    detail::check_rank(comm, "send", "peer", to, where);
    const Call call = detail::call_of<T>(Verb::send, values.size(), values.size_bytes(), where);
    detail::make_call(
        comm, call, values.data(), nullptr, [&] { comm.send(values, to, stream, call); },
        [&] { return detail::message_moved(comm, to, values.size_bytes()); });
}

/// Receives what rank `from` sends, with the sender's element type and count. Order and errors as of `send`.
template <Element T, SendsAndReceives<T> C>
void receive(const C& comm, std::span<T> values, std::size_t from, typename C::Stream stream,
             SourceLocation where = SourceLocation::current()) {
    detail::check_rank(comm, "receive", "peer", from, where);
    const Call call = detail::call_of<T>(Verb::receive, values.size(), values.size_bytes(), where);
    detail::make_call(
        comm, call, nullptr, values.data(), [&] { comm.receive(values, from, stream, call); },
        [&] { return detail::message_moved(comm, from, values.size_bytes()); });
}

/// Sends to one rank and receives from another, the same or itself at once, so that a ring of ranks cannot block.
/// Seen as a receive around a send by journals and observers; the engine is given the call of the sending end.
/// Order:   stream-ordered. Errors as of `send`.
template <Element T, SendsAndReceives<T> C>
void send_receive(const C& comm, std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                  typename C::Stream stream, SourceLocation where = SourceLocation::current()) {
    detail::check_rank(comm, "send_receive", "peer", to, where);
    detail::check_rank(comm, "send_receive", "peer", from, where);
    const Call sends = detail::call_of<T>(Verb::send, sent.size(), sent.size_bytes(), where);
    const Call receives = detail::call_of<T>(Verb::receive, received.size(), received.size_bytes(), where);
    if (!detail::begin(comm, receives, nullptr, received.data())) { return; }
    if (!detail::begin(comm, sends, sent.data(), nullptr)) { return; }
    comm.send_receive(sent, to, received, from, stream, sends);
    detail::end(comm, sends, sent.data(), nullptr, detail::message_moved(comm, to, sent.size_bytes()));
    detail::end(comm, receives, nullptr, received.data(), detail::message_moved(comm, from, received.size_bytes()));
}

}  // namespace shardkit
