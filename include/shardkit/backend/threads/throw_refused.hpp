// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/threads/group_end.hpp>
#include <shardkit/backend/threads/message.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::threads {

/// Says on either end that a message was of another type or count than the receiver expected.
[[noreturn]] inline void throw_refused(const GroupEnd& end, Verb verb, const Message& message, std::size_t from,
                                       std::size_t to, SourceLocation where) {
    throw CommError("threads", detail::concat(name(verb), " over ", end.axes),
                    detail::concat("the ranks disagree: rank ", end.world_rank(from), " calls ",
                                   describe(message.signature, message.where), ", rank ", end.world_rank(to),
                                   " calls ", describe(message.expected, message.expected_at)),
                    where);
}

}  // namespace shardkit::threads
