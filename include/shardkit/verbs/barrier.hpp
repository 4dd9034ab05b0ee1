// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/make_call.hpp>
#include <shardkit/verbs/verb_memory.hpp>

namespace shardkit {

/// Returns once every rank of `comm` has called it. On an asynchronous stream it completes in stream order instead.
/// @throws  CommError when the engine fails or a rank is gone
inline void barrier(const Communicator& comm, const Stream& stream = {},
                    SourceLocation where = SourceLocation::current()) {
    const Call call{{.verb = Verb::barrier}, 0, where};
    detail::make_call(comm, call, nullptr, nullptr, [&](const host::Verbs& engine) {
        engine.barrier(stream, call);
        return std::uint64_t{0};
    });
}

}  // namespace shardkit
