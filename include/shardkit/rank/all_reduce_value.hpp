// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/rank.hpp>

namespace shardkit SHARDKIT_FACE {

/// Reduces one number of each rank of `comm` (a loss to print, a count of tokens) and returns the result.
///     const double loss = all_reduce_value(rank, loss_here) / rank.world_size();
/// Order:   collective over `comm`; after the work given to the compute stream; the host waits
/// Cost:    the all-reduce of one element; no memory after the first call
/// @returns the same number on every rank
template <Element T>
T all_reduce_value(Rank& rank, const Communicator& comm, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current());
/// The same over all ranks.
template <class T>
requires(!std::is_same_v<T, Communicator>) && Element<T> T
    all_reduce_value(Rank& rank, T value, ReduceOp op = ReduceOp::sum,
                     SourceLocation where = SourceLocation::current()) {
    return all_reduce_value(rank, rank.world(), value, op, where);
}

/// Returns the sum of the numbers of all ranks of `comm`, exact until it is rounded once. So it is the same, to the
/// last bit, for the same numbers (say the losses of a batch's samples), however many ranks have them, and in
/// whatever order.
///     const double loss = exact_sum(rank, losses_here) / samples;
/// Order:   collective over `comm`; after the work given to the compute stream; the host waits
/// Cost:    the all-reduce of 69 doubles; no memory after the first call
double exact_sum(Rank& rank, const Communicator& comm, std::span<const double> values,
                 SourceLocation where = SourceLocation::current());
/// The same over all ranks.
inline double exact_sum(Rank& rank, std::span<const double> values,
                        SourceLocation where = SourceLocation::current()) {
    return exact_sum(rank, rank.world(), values, where);
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <cstdint>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace shardkit::detail {
/// Memory for a verb that a rank keeps, so that no step allocates.
template <class T, std::size_t count>
struct KeptMemory {
    explicit KeptMemory(const Rank& rank) : memory(rank.buffer<T>(count)) {}
    HostBuffer<T> memory;
};

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

template <Element T>
T all_reduce_value(Rank& rank, const Communicator& comm, T value, ReduceOp op, SourceLocation where) {
    const auto stream = rank.compute_stream();
    // Of the widest type, for all types.
    auto& kept = rank.kept<detail::KeptMemory<std::uint64_t, 1>>().memory;
    const std::span<T> memory(reinterpret_cast<T*>(kept.data()), 1);
    host::AnyKernels::copy_in(stream, std::span<const T>(&value, 1), memory);
    all_reduce_in_place(comm, op, memory, stream, where);
    return rank.read(memory.data());
}

SHARDKIT_CORE_INLINE double exact_sum(Rank& rank, const Communicator& comm, std::span<const double> values,
                                      SourceLocation where) {
    const auto stream = rank.compute_stream();
    const std::span<double> memory = rank.kept<detail::KeptMemory<double, ExactSum::numbers>>().memory.span();
    ExactSum total;
    for (const double value : values) { total.add(value); }
    double numbers[ExactSum::numbers]{};
    total.add_to(numbers);
    host::AnyKernels::copy_in(stream, std::span<const double>(numbers), memory);
    detail::all_reduce_span(comm, detail::TreelessOp(ReduceOp::sum), memory, stream, where);
    host::AnyKernels::copy_out(stream, std::span<const double>(memory), std::span<double>(numbers));
    return ExactSum(numbers).value();
}

}  // namespace SHARDKIT_FACE
#endif
