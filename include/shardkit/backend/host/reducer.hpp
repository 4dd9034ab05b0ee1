// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::engine {
struct ReductionStep;
}  // namespace shardkit::engine

namespace shardkit::host::detail {

/// A place for a reduction's results, and how to write them.
template <class Out>
struct Result {
    Out* data;
    Store store = Store::cached;
};

/// The operands of a reduction, without their types: the ranks' inputs, and the places of the results.
class Operands {
  public:
    /// The largest number of inputs and of results that are read and written side by side; more are reduced block
    /// after block.
    static constexpr std::size_t most = 64;

    const std::size_t ranks;
    const std::size_t results;

    /// Collects the ranks' inputs and results; `input_of` and `result_of`, which outlive it, are as for
    /// reduce_in_rank_order().
    template <class InputOf, class ResultOf>
    Operands(std::size_t rank_count, const InputOf& input_of, std::size_t result_count,
             const ResultOf& result_of) noexcept
        : ranks(rank_count),
          results(result_count),
          input_of_(&input_of),
          result_of_(&result_of),
          call_input_(
              [](const void* f, std::size_t q) -> const void* { return (*static_cast<const InputOf*>(f))(q); }),
          call_result_([](const void* f, std::size_t i) -> Result<void> {
              const auto result = (*static_cast<const ResultOf*>(f))(i);
              return {result.data, result.store};
          }) {
        if (!side_by_side()) { return; }
        for (std::size_t q = 0; q < ranks; ++q) { inputs_[q] = input_of(q); }
        for (std::size_t i = 0; i < results; ++i) {
            const auto result = result_of(i);
            places_[i] = result.data;
            stores_[i] = result.store;
        }
    }

    /// Returns whether there are few enough to read and write them side by side.
    bool side_by_side() const noexcept { return ranks <= most && results <= most; }

    /// Returns a rank's input of elements of type In.
    /// @pre side_by_side()
    template <class In>
    const In* input(std::size_t rank) const noexcept {
        return static_cast<const In*>(inputs_[rank]);
    }
    template <class Out>
    Result<Out> result(std::size_t i) const noexcept {
        return {static_cast<Out*>(places_[i]), stores_[i]};
    }
    /// The same of any number.
    template <class In>
    const In* any_input(std::size_t rank) const noexcept {
        return side_by_side() ? input<In>(rank) : static_cast<const In*>(call_input_(input_of_, rank));
    }
    template <class Out>
    Result<Out> any_result(std::size_t i) const noexcept {
        if (side_by_side()) { return result<Out>(i); }
        const Result<void> its = call_result_(result_of_, i);
        return {static_cast<Out*>(its.data), its.store};
    }

    /// Returns the number of elements of type Out before the first one at which all streamed results begin a cache
    /// line; `count` if there is none.
    /// @pre side_by_side()
    template <class Out>
    std::size_t elements_before_line(std::size_t count) const noexcept {
        constexpr std::size_t line = 64;
        bool streams = false;
        std::size_t phase = 0;
        for (std::size_t i = 0; i < results; ++i) {
            if (stores_[i] == Store::cached) { continue; }
            const std::size_t found = reinterpret_cast<std::uintptr_t>(places_[i]) % line;
            if (found % sizeof(Out) != 0 || (streams && found != phase)) { return count; }
            phase = found;
            streams = true;
        }
        return std::min(count, (line - phase) % line / sizeof(Out));
    }

  private:
    const void* input_of_;
    const void* result_of_;
    const void* (*call_input_)(const void*, std::size_t);
    Result<void> (*call_result_)(const void*, std::size_t);
    // Only the used entries are set: small sums are frequent.
    const void* inputs_[most];
    void* places_[most];
    Store stores_[most];
};

/// A range of elements.
using Chunk = IndexRange;

/// Returns the part of `count` elements that rank `rank` of `ranks` works on. Parts are consecutive, in rank order,
/// split at multiples of 128 bytes so that two ranks do not write the same cache line, and otherwise as equal as
/// possible.
/// @post the chunks of all ranks are disjoint and cover [0, count)
constexpr Chunk chunk_of(std::size_t count, std::size_t element_size, std::size_t rank, std::size_t ranks) noexcept {
    const std::size_t unit = std::max<std::size_t>(1, 128 / element_size);
    const std::size_t units = count / unit + (count % unit != 0 ? 1 : 0);
    const std::size_t each = units / ranks;
    const std::size_t longer = units % ranks;  // this many ranks at the front have one unit more
    const std::size_t first = rank * each + std::min(rank, longer);
    const std::size_t last = first + each + (rank < longer ? 1 : 0);
    return {std::min(count, first * unit), std::min(count, last * unit)};
}

/// How elements of one type are reduced to elements of another, as a value: what a verb that adds needs to know of
/// its types.
struct Reducer {
    std::size_t in_size;   ///< bytes of an element of the inputs
    std::size_t out_size;  ///< and of the result
    ElementType in;
    ElementType out;
    void (*reduce)(ReduceOp op, const Operands& operands, std::size_t count) noexcept;

    // What an engine whose memory is a device's needs to know.
    bool one_type;           ///< whether inputs and results are elements of one C++ type
    bool out_is_arithmetic;  ///< whether sums are made in the results' type
    ElementType arithmetic;  ///< the type in which they are made
    /// Gives a kernel to a device's stream; null where elements are no floating-point ones.
    void (*on_device)(const Stream& stream, const engine::ReductionStep& step);
};
/// Reduces `count` elements of each of `ranks` inputs in Arithmetic<Out>, in rank order 0, 1, ... (a tree_sum: along
/// its tree), rounds once, and writes the result to each of `results` places. After streaming, call `finish` before
/// another thread reads them. A range is written only after all inputs were read there, so a result may replace one
/// of the inputs. `input_of(q)` returns rank q's first element, `result_of(i)` the i-th place as a Result.
template <class InputOf, class ResultOf>
void reduce_in_rank_order(const Reducer& reducer, ReduceOp op, std::size_t ranks, std::size_t count,
                          const InputOf& input_of, std::size_t results, const ResultOf& result_of) noexcept {
    reducer.reduce(op, Operands(ranks, input_of, results, result_of), count);
}

/// Reduces the same to one result.
template <class InputOf, class Out>
void reduce_in_rank_order(const Reducer& reducer, ReduceOp op, std::size_t ranks, std::size_t count,
                          const InputOf& input_of, Result<Out> result) noexcept {
    reduce_in_rank_order(reducer, op, ranks, count, input_of, 1, [&](std::size_t) { return result; });
}

}  // namespace shardkit::host::detail
