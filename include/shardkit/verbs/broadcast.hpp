// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit {

namespace detail {
/// Makes the verb below of elements whose type is a value.
inline void broadcast(const Communicator& comm, ElementType type, host::Memory values, std::size_t root,
                      const Stream& stream, SourceLocation where) {
    check_rank(comm, "broadcast", "root", root, where);
    const Call call = call_of({type, type}, Verb::broadcast, values.count, values.bytes(), {where, nullptr, root});
    make_call(comm, call, nullptr, values.at, [=, &stream, &call](const host::Verbs& engine) {
        return engine.broadcast(values, root, stream, call);
    });
}
}  // namespace detail

/// Copies rank `root`'s values to every rank.
/// Shapes:  values [k], the same k on all ranks.   Order: stream-ordered. Collective over `comm`.
/// Cost:    every other rank receives the bytes of `values` once.
/// @throws  std::invalid_argument when root is no rank of `comm`; CommError when the engine fails
template <class Values>
void broadcast(const Communicator& comm, Values&& values, std::size_t root, const Stream& stream = {},
               SourceLocation where = SourceLocation::current()) {
    detail::broadcast(comm, detail::type_in<Values>, detail::verb_output(std::forward<Values>(values)), root, stream,
                      where);
}

}  // namespace shardkit
