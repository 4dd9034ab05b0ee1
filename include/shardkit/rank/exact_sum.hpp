// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit {

namespace detail {
/// The memory for one sum that a rank keeps, so that no step allocates.
template <class Engine>
struct ExactSumMemory {
    explicit ExactSumMemory(const Context<Engine>& context)
        : numbers(context.template buffer<double>(ExactSum::numbers)) {}
    typename Engine::template Buffer<double> numbers;
};
}  // namespace detail

/// Returns the sum of the numbers of all ranks of `comm`, exact until it is rounded once. So it is the same, to the
/// last bit, for the same numbers (say the losses of a batch's samples), however many ranks have them, and in
/// whatever order.
///     const double loss = exact_sum(rank, losses_here) / samples;
/// Order:   collective over `comm`; after the work given to the compute stream; the host waits
/// Cost:    the all-reduce of 69 doubles; no memory after the first call
template <class Engine>
double exact_sum(Context<Engine>& rank, const typename Engine::Communicator& comm, std::span<const double> values,
                 SourceLocation where = SourceLocation::current()) {
    const auto stream = rank.compute_stream();
    const std::span<double> memory = rank.template kept<detail::ExactSumMemory<Engine>>().numbers.span();
    ExactSum total;
    for (const double value : values) { total.add(value); }
    double numbers[ExactSum::numbers]{};
    total.add_to(numbers);
    Engine::Kernels::copy_in(stream, std::span<const double>(numbers), memory);
    all_reduce_in_place(comm, ReduceOp::sum, memory, stream, where);
    Engine::Kernels::copy_out(stream, std::span<const double>(memory), std::span<double>(numbers));
    return ExactSum(numbers).value();
}
/// The same over all ranks.
template <class Engine>
double exact_sum(Context<Engine>& rank, std::span<const double> values,
                 SourceLocation where = SourceLocation::current()) {
    return exact_sum(rank, rank.world(), values, where);
}

}  // namespace shardkit
