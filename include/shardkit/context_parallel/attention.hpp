// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <shardkit/context_parallel/attention_kernels.hpp>
#include <shardkit/context_parallel/ring_exchange.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/spi/launches.hpp>

namespace shardkit::cp SHARDKIT_BUILD {

/// Causal attention over a sequence that is split over cp: each query sees the keys of all ranks at its position and
/// before. `Exchange` chooses how keys and values are exchanged: RingExchange or GatherExchange. Its kernels are a
/// reference that runs on every engine: one thread computes a query's row, and reads all keys for it. On a GPU call
/// an exchange with kernels of your own. Arithmetic is in A throughout. The result equals attention on one rank,
/// except for the order of additions.
template <class A, template <class> class Exchange = RingExchange>
class Attention {
  public:
    /// Allocates the memory for a rank's part of `shape`, split as CausalChunks says.
    /// @throws std::invalid_argument when cp has several ranks and the number of tokens is odd
    Attention(Rank& rank, const Communicator& cp, const AttentionShape& shape,
              SourceLocation where = SourceLocation::current())
        : rank_(rank),
          cp_(cp),
          shape_(shape),
          chunks_(CausalChunks::of(shape.tokens * cp.size(), cp.size(), cp.rank(), where)),
          exchange_(rank, cp, shape.block()),
          dots_(detail::EngineTable<A>::zeroed(rank, shape.rows())) {}

    /// Writes `output` and, for the backward pass, the logarithm of each row's sum of exponentials.
    /// Shapes:  as AttentionShape says.
    /// Order:   on the rank's streams. Collective over cp.
    /// @throws  std::invalid_argument when a size is wrong; CommError when the engine fails
    void forward(std::span<const A> queries, std::span<const A> keys_values, std::span<A> output,
                 std::span<A> log_sum_exp, SourceLocation where = SourceLocation::current()) {
        check_pass(queries, keys_values, output, log_sum_exp, where);
        using Kernels = host::AnyKernels;
        const auto compute = rank_.compute_stream();
        Kernels::fill(compute, output, A{0});
        Kernels::fill(compute, log_sum_exp, -std::numeric_limits<A>::infinity());
        exchange_.each(
            keys_values,
            [&](std::size_t source, std::span<const A> block) {
                Kernels::for_each_index(compute, shape_.rows(),
                                        detail::AttendRow<A>{causal(source), queries.data(), block.data(), scale(),
                                                             output.data(), log_sum_exp.data()});
            },
            where);
    }

    /// Adds to the gradients of queries, keys and values. `output` and `log_sum_exp` are the results of forward.
    void backward(std::span<const A> queries, std::span<const A> keys_values, std::span<const A> output,
                  std::span<const A> log_sum_exp, std::span<const A> d_output, std::span<A> d_queries,
                  std::span<A> d_keys_values, SourceLocation where = SourceLocation::current()) {
        check_pass(queries, keys_values, output, log_sum_exp, where);
        check("gradients at the output", d_output.size(), shape_.queries(), where);
        check("gradients of queries", d_queries.size(), shape_.queries(), where);
        check("gradients of keys and values", d_keys_values.size(), shape_.block(), where);
        using Kernels = host::AnyKernels;
        const auto compute = rank_.compute_stream();
        Kernels::for_each_index(
            compute, shape_.rows(),
            detail::OutputDot<A>{output.data(), d_output.data(), shape_.head_width, dots_.data()});
        exchange_.each_with_gradients(
            keys_values, d_keys_values,
            [&](std::size_t source, std::span<const A> block, std::span<A> d_block) {
                const detail::BlockBackward<A> backward{causal(source),  queries.data(),     block.data(), scale(),
                                                        d_output.data(), log_sum_exp.data(), dots_.data()};
                Kernels::for_each_index(compute, shape_.rows(),
                                        detail::QueryGradientRow<A>{backward, d_queries.data()});
                Kernels::for_each_index(compute, shape_.rows(),
                                        detail::KeyValueGradientRow<A>{backward, d_block.data()});
            },
            where);
    }

  private:
    detail::CausalBlock causal(std::size_t source) const {
        return {shape_, chunks_, CausalChunks::of(shape_.tokens * cp_.size(), cp_.size(), source)};
    }
    A scale() const { return A{1} / std::sqrt(static_cast<A>(shape_.head_width)); }
    void check_pass(std::span<const A> queries, std::span<const A> keys_values, std::span<const A> output,
                    std::span<const A> log_sum_exp, SourceLocation where) const {
        check("queries", queries.size(), shape_.queries(), where);
        check("keys and values", keys_values.size(), shape_.block(), where);
        check("outputs", output.size(), shape_.queries(), where);
        check("rows", log_sum_exp.size(), shape_.rows(), where);
    }
    static void check(const char* what, std::size_t given, std::size_t expected, SourceLocation where) {
        require_argument(given == expected, where, "cp::Attention: ", given, " ", what, ", expected ", expected);
    }

    Rank& rank_;
    Communicator cp_;
    AttentionShape shape_;
    CausalChunks chunks_;
    Exchange<A> exchange_;
    detail::EngineTable<A> dots_;
};

}  // namespace shardkit::cp SHARDKIT_BUILD
