// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit {

namespace detail {
/// The memory for one number that a rank keeps, so that no step allocates.
template <class Engine>
struct NumberMemory {
    explicit NumberMemory(const Context<Engine>& context)
        : memory(context.template buffer<std::uint8_t>(sizeof(std::uint64_t))) {}
    typename Engine::template Buffer<std::uint8_t> memory;
};
}  // namespace detail

/// Reduces one number of each rank of `comm` (a loss to print, a count of tokens) and returns the result.
///     const double loss = all_reduce_value(rank, loss_here) / rank.world_size();
/// Order:   collective over `comm`; after the work given to the compute stream; the host waits
/// Cost:    the all-reduce of one element; no memory after the first call
/// @returns the same number on every rank
template <class Engine, Element T>
T all_reduce_value(Context<Engine>& rank, const typename Engine::Communicator& comm, T value,
                   ReduceOp op = ReduceOp::sum, SourceLocation where = SourceLocation::current()) {
    const auto stream = rank.compute_stream();
    auto& kept = rank.template kept<detail::NumberMemory<Engine>>();
    const std::span<T> memory(reinterpret_cast<T*>(kept.memory.data()), 1);
    Engine::Kernels::copy_in(stream, std::span<const T>(&value, 1), memory);
    all_reduce_in_place(comm, op, memory, stream, where);
    return rank.read(memory.data());
}
/// The same over all ranks.
template <class Engine, Element T>
T all_reduce_value(Context<Engine>& rank, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current()) {
    return all_reduce_value(rank, rank.world(), value, op, where);
}

}  // namespace shardkit
