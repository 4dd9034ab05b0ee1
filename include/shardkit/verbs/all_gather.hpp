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
/// Makes the verbs below of elements whose type is a value.
inline void all_gather(const Communicator& comm, ElementType type, host::ConstMemory shard, host::Memory full,
                       const Stream& stream, const engine::CallSite& site) {
    check_full(comm, "all_gather", full.count, shard.count, site.where);
    const Call call = call_of({type, type}, Verb::all_gather, shard.count, full.bytes(), site);
    make_call(comm, call, shard.at, full.at, [=, &stream, &call](const host::Verbs& engine) {
        return engine.all_gather(shard, full, stream, call);
    });
}
inline void all_gather_in_place(const Communicator& comm, ElementType type, host::Memory full, const Stream& stream,
                                const engine::CallSite& site) {
    check_multiple(comm, "all_gather_in_place", full.count, site.where);
    if (comm.size() == 1) { return; }
    const std::size_t k = full.count / comm.size();
    const Call call = call_of({type, type}, Verb::all_gather, k, full.bytes(), site);
    make_call(comm, call, nullptr, full.at, [=, &stream, &call](const host::Verbs& engine) {
        return engine.all_gather(full.part(engine.rank() * k, k), full, stream, call);
    });
}
}  // namespace detail

/// Gathers every rank's shard into `full`, in rank order.
/// Shapes:  shard [k], full [size * k]; elements, not bytes. The two must not overlap.
/// Order:   stream-ordered; the host may return before the data arrives. Collective over `comm`.
/// Cost:    (size - 1) / size of full's bytes received per rank.
/// @pre     same k on all ranks   @post full[r * k, (r + 1) * k) is rank r's shard
/// @throws  std::invalid_argument when full is not size times shard; CommError when the engine fails
template <class Shard, class Full>
void all_gather(const Communicator& comm, Shard&& shard, Full&& full, const Stream& stream = {},
                engine::CallSite site = SourceLocation::current()) {
    static_assert(detail::SameElements<Shard, Full>::are_given);
    detail::all_gather(comm, detail::type_in<Shard>, detail::verb_input(std::forward<Shard>(shard)),
                       detail::verb_output(std::forward<Full>(full)), stream, site);
}

/// Gathers in place: rank r's shard is already at its place in `full`. Over one rank it does nothing.
/// Shapes:  full [size * k]; this rank's k elements from rank * k on are the input.
/// @throws  std::invalid_argument when size does not divide full; CommError when the engine fails
template <class Full>
void all_gather_in_place(const Communicator& comm, Full&& full, const Stream& stream = {},
                         engine::CallSite site = SourceLocation::current()) {
    detail::all_gather_in_place(comm, detail::type_in<Full>, detail::verb_output(std::forward<Full>(full)), stream,
                                site);
}

}  // namespace shardkit
