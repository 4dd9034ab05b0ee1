// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/stream.hpp>

namespace shardkit {

/// A communicator is a group of ranks that call the same verbs in the same order. It is cheap to copy: a non-owning
/// reference to state that the engine keeps.
/// Call the functions in comm/, not the members with the same names: the members only move data, and take a Call,
/// which the function has checked and logged, as their last argument.
/// `named(axes)` returns the same group under another name for errors and the traffic log; local, no communication.
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

}  // namespace shardkit
