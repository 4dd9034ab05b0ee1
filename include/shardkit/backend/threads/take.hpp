// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/stream_elements.hpp>
#include <shardkit/backend/threads/channel.hpp>
#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/message.hpp>
#include <shardkit/backend/threads/throw_refused.hpp>
#include <shardkit/backend/threads/waiting.hpp>
#include <shardkit/comm/call.hpp>

namespace shardkit::threads {

/// Waits for a message from rank `from` and copies it to `to`.
/// @throws PeerError when it cannot come any more; CommError when it is of another type or count
inline void take(const GroupEnd& end, std::size_t from, void* to, const shardkit::Call& call) {
    const Signature& expected = call.signature;
    Channel& channel = end.group.channel(from, end.rank);
    const std::size_t self = end.world_rank(end.rank);
    const auto needed = end.group.world_ranks().subspan(from, 1);
    Message* message = nullptr;
    std::uint32_t base = 0;
    while (message == nullptr) {  // again when a sender that cannot go on took its message back
        base = channel.base();
        const Waiting waiting{Verb::receive, &end.axes, base / 4, call.where};
        end.world.wait_for_entry(self, channel.word(), Channel::posted(base), waiting, needed);
        message = channel.claim(base);
        if (message == nullptr && channel.word().poisoned()) { end.world.throw_peer_error(self, waiting, needed); }
    }
    if (message->signature.in != expected.in || message->signature.count != expected.count) {
        message->refused = true;
        message->expected = expected;
        message->expected_at = call.where;
        const Message refused = *message;
        channel.consume(base);
        throw_refused(end, Verb::receive, refused, from, end.rank, call.where);
    }
    const std::size_t bytes = expected.count * size_of(expected.in);
    // As when each rank of the group sends as much, in a ring.
    const host::Store store = host::store_for(2 * end.group.size() * bytes);
    host::copy_elements(static_cast<const std::byte*>(message->data), static_cast<std::byte*>(to), bytes, store);
    host::finish(store);
    channel.consume(base);
}

}  // namespace shardkit::threads
