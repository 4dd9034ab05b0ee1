// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit {

/// A communicator is a group of ranks that call the same verbs in the same order. Cheap to copy: a non-owning
/// reference to state that the engine keeps. What it can do beyond this is said by one concept per verb
/// (comm/all_gather.hpp, ...), so that an engine need not have all of them.
/// The verbs are the functions in comm/, not the members of the same names: these only move data, and take what the
/// function has checked and written down as their last argument, a Call.
/// `named(axes)` is the same group under another name for errors and the traffic log; local, no communication.
template <class C>
concept Communicator = std::copyable<C> &&
    requires(const C comm, typename C::Stream stream, const Call& call, std::size_t n, std::string_view axes) {
    requires Stream<typename C::Stream>;
    { comm.rank() } -> std::convertible_to<std::size_t>;
    { comm.size() } -> std::convertible_to<std::size_t>;
    { comm.axes() } -> std::convertible_to<std::string_view>;
    { comm.split(n, n, axes, call) } -> std::same_as<C>;
    { comm.named(axes) } -> std::same_as<C>;
    comm.barrier(stream, call);
};

/// The engine can run reductions over a group of ranks beside other verbs over it, once it was told to: collective
/// over the group.
template <class C>
concept SeparatesReductions = requires(const C& comm, SourceLocation where) {
    comm.separate_reductions(where);
};

}  // namespace shardkit
