// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

/// A group of ranks that call the same verbs in the same order. Cheap to copy: a non-owning reference to
/// state that the engine keeps. What it can do beyond this is said by one concept per verb
/// (comm/all_gather.hpp, ...), so that an engine need not have all of them.
///
/// `split(color, key, axes)` is collective over this communicator: ranks with the same color form a new one,
/// ordered by key, then by rank here; `axes` is the name that errors and the traffic log give it.
/// `named(axes)` is the same group under another such name; local, no communication.
template <class C>
concept Communicator = std::copyable<C> &&
    requires(const C comm, typename C::Stream stream, SourceLocation where, std::size_t n, std::string_view axes) {
    requires Stream<typename C::Stream>;
    { comm.rank() } -> std::convertible_to<std::size_t>;
    { comm.size() } -> std::convertible_to<std::size_t>;
    { comm.axes() } -> std::convertible_to<std::string_view>;
    { comm.split(n, n, axes, where) } -> std::same_as<C>;
    { comm.named(axes) } -> std::same_as<C>;
    comm.barrier(stream, where);
};

}  // namespace shardkit
