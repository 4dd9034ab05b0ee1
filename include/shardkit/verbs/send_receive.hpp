// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit {

namespace detail {
/// Makes the verbs below of elements whose type is a value.
inline void send(const Communicator& comm, ElementType type, host::ConstMemory values, std::size_t to,
                 const Stream& stream, SourceLocation where) {
    check_rank(comm, "send", "peer", to, where);
    const Call call = call_of({type, type}, Verb::send, values.count, values.bytes(), {where, nullptr, to});
    make_call(comm, call, values.at, nullptr, [=, &comm, &stream, &call](const host::Verbs& engine) {
        engine.send(values, to, stream, call);
        return bytes_with_peer(comm, to, values.bytes());
    });
}
inline void receive(const Communicator& comm, ElementType type, host::Memory values, std::size_t from,
                    const Stream& stream, SourceLocation where) {
    check_rank(comm, "receive", "peer", from, where);
    const Call call = call_of({type, type}, Verb::receive, values.count, values.bytes(), {where, nullptr, from});
    make_call(comm, call, nullptr, values.at, [=, &comm, &stream, &call](const host::Verbs& engine) {
        engine.receive(values, from, stream, call);
        return bytes_with_peer(comm, from, values.bytes());
    });
}
inline void send_receive(const Communicator& comm, ElementType type, host::ConstMemory sent, std::size_t to,
                         host::Memory received, std::size_t from, const Stream& stream, SourceLocation where) {
    check_rank(comm, "send_receive", "peer", to, where);
    check_rank(comm, "send_receive", "peer", from, where);
    Call sends = call_of({type, type}, Verb::send, sent.count, sent.bytes(), {where, nullptr, to});
    sends.entries = 2;
    const Call receives =
        call_of({type, type}, Verb::receive, received.count, received.bytes(), {where, nullptr, from});
    make_call(comm, receives, nullptr, received.at, [&](const host::Verbs&) {
        make_call(comm, sends, sent.at, nullptr, [&](const host::Verbs& engine) {
            engine.send_receive(sent, to, received, from, stream, sends);
            return bytes_with_peer(comm, to, sent.bytes());
        });
        return bytes_with_peer(comm, from, received.bytes());
    });
}
}  // namespace detail

/// Sends `values` to rank `to`, which must call `receive`. Messages between two ranks keep their order.
/// Order:   stream-ordered rendezvous: it completes only once the receiver takes the data, so two ranks that both
///          send first wait for each other forever: use `send_receive`.
/// @throws  std::invalid_argument when `to` is no rank of `comm`; CommError on failure or when sizes disagree
template <class Values>
void send(const Communicator& comm, Values&& values, std::size_t to, const Stream& stream = {},
          SourceLocation where = SourceLocation::current()) {
    detail::send(comm, detail::type_in<Values>, detail::verb_input(std::forward<Values>(values)), to, stream, where);
}

/// Receives what rank `from` sends, with the sender's element type and count. Order and errors as for `send`.
template <class Values>
void receive(const Communicator& comm, Values&& values, std::size_t from, const Stream& stream = {},
             SourceLocation where = SourceLocation::current()) {
    detail::receive(comm, detail::type_in<Values>, detail::verb_output(std::forward<Values>(values)), from, stream,
                    where);
}

/// Sends to one rank and receives from another, or from the same one or itself, at once, so that a ring of ranks
/// cannot block. Journals and observers see a receive around a send; the engine gets the call of the sending end.
/// Order:   stream-ordered. Errors as for `send`.
template <class Sent, class Received>
void send_receive(const Communicator& comm, Sent&& sent, std::size_t to, Received&& received, std::size_t from,
                  const Stream& stream = {}, SourceLocation where = SourceLocation::current()) {
    static_assert(detail::SameElements<Sent, Received>::are_given);
    detail::send_receive(comm, detail::type_in<Sent>, detail::verb_input(std::forward<Sent>(sent)), to,
                         detail::verb_output(std::forward<Received>(received)), from, stream, where);
}

}  // namespace shardkit
