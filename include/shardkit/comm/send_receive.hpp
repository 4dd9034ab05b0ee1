// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <shardkit/comm/any_stream.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/verb_memory.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit {

/// Sends `values` to rank `to`, which must call `receive`. Messages between two ranks keep their order.
/// Order:   stream-ordered rendezvous: it completes only once the receiver takes the data, so two ranks that both
///          send first wait for each other forever: use `send_receive`.
/// @throws  std::invalid_argument when `to` is no rank of `comm`; CommError on failure or when sizes disagree
template <class Values, Communicator C>
void send(const C& comm, Values&& values, std::size_t to, const AnyStream& stream = {},
          SourceLocation where = SourceLocation::current()) {
    const auto sent = detail::verb_input(std::forward<Values>(values));
    detail::check_rank(comm, "send", "peer", to, where);
    const Call call =
        detail::call_of<detail::ElementIn<Values>>(Verb::send, sent.size(), sent.size_bytes(), {where, nullptr, to});
    detail::make_call(comm, call, sent.data(), nullptr, [&] {
        comm.send(sent, to, stream, call);
        return detail::bytes_with_peer(comm, to, sent.size_bytes());
    });
}

/// Receives what rank `from` sends, with the sender's element type and count. Order and errors as for `send`.
template <class Values, Communicator C>
void receive(const C& comm, Values&& values, std::size_t from, const AnyStream& stream = {},
             SourceLocation where = SourceLocation::current()) {
    const auto received = detail::verb_output(std::forward<Values>(values));
    detail::check_rank(comm, "receive", "peer", from, where);
    const Call call = detail::call_of<detail::ElementIn<Values>>(Verb::receive, received.size(),
                                                                 received.size_bytes(), {where, nullptr, from});
    detail::make_call(comm, call, nullptr, received.data(), [&] {
        comm.receive(received, from, stream, call);
        return detail::bytes_with_peer(comm, from, received.size_bytes());
    });
}

/// Sends to one rank and receives from another, or from the same one or itself, at once, so that a ring of ranks
/// cannot block. Journals and observers see a receive around a send; the engine gets the call of the sending end.
/// Order:   stream-ordered. Errors as for `send`.
template <class Sent, class Received, Communicator C>
void send_receive(const C& comm, Sent&& sent, std::size_t to, Received&& received, std::size_t from,
                  const AnyStream& stream = {}, SourceLocation where = SourceLocation::current()) {
    static_assert(detail::SameElements<Sent, Received>::are_given);
    using T = detail::ElementIn<Sent>;
    const auto out = detail::verb_input(std::forward<Sent>(sent));
    const auto in = detail::verb_output(std::forward<Received>(received));
    detail::check_rank(comm, "send_receive", "peer", to, where);
    detail::check_rank(comm, "send_receive", "peer", from, where);
    Call sends = detail::call_of<T>(Verb::send, out.size(), out.size_bytes(), {where, nullptr, to});
    sends.entries = 2;
    const Call receives = detail::call_of<T>(Verb::receive, in.size(), in.size_bytes(), {where, nullptr, from});
    if (!detail::begin(comm, receives, nullptr, in.data())) { return; }
    const detail::OpenCall<C> open_receive(comm, receives);
    if (!detail::begin(comm, sends, out.data(), nullptr)) { return; }
    const detail::OpenCall<C> open_send(comm, sends);
    comm.send_receive(out, to, in, from, stream, sends);
    detail::end(comm, sends, out.data(), nullptr, detail::bytes_with_peer(comm, to, out.size_bytes()));
    detail::end(comm, receives, nullptr, in.data(), detail::bytes_with_peer(comm, from, in.size_bytes()));
}

}  // namespace shardkit
