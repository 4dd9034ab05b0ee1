// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/copy_elements.hpp>

namespace shardkit::host::detail {

/// A place for a reduction's results, and how to write them.
template <class Out>
struct Result {
    Out* data;
    Store store = Store::cached;
};

/// The operands of a reduction side by side: the ranks' inputs, and the places of the results.
template <class In, class Out>
class Summands {
  public:
    /// The largest number of inputs and of results; more are reduced block after block.
    static constexpr std::size_t most = 64;

    const std::size_t ranks;
    const std::size_t results;

    /// Collects the ranks' inputs and results; `input_of` and `result_of` are as for reduce_in_rank_order().
    /// @pre neither `ranks` nor `results` exceeds `most`
    template <class InputOf, class ResultOf>
    Summands(std::size_t rank_count, InputOf input_of, std::size_t result_count, ResultOf result_of) noexcept
        : ranks(rank_count), results(result_count) {
        for (std::size_t q = 0; q < ranks; ++q) { inputs_[q] = input_of(q); }
        for (std::size_t i = 0; i < results; ++i) {
            const Result<Out> result = result_of(i);
            places_[i] = result.data;
            stores_[i] = result.store;
        }
    }

    const In* input(std::size_t rank) const noexcept { return inputs_[rank]; }
    Result<Out> result(std::size_t i) const noexcept { return {places_[i], stores_[i]}; }

    /// Returns the number of elements before the first one at which all streamed results begin a cache line; `count`
    /// if there is none.
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
    // Only the used entries are set: small sums are frequent.
    const In* inputs_[most];
    Out* places_[most];
    Store stores_[most];
};

/// Adds to `sum`, which is what input `first` has at `offset`, the Ranks - 1 inputs behind it: pairs of neighbours,
/// then pairs of these.
template <std::size_t Ranks, class Sum, class In, class Out>
[[gnu::always_inline]] inline void add_tree(Sum& sum, const Summands<In, Out>& summands, std::size_t first,
                                            std::size_t offset) noexcept {
    if constexpr (Ranks > 1) {
        constexpr std::size_t half = Ranks / 2;
        add_tree<half>(sum, summands, first, offset);
        Sum right = Sum::of(summands.input(first + half) + offset);
        add_tree<half>(right, summands, first + half, offset);
        sum.add(right);
    }
}

/// Does the same for 16 to 64 ranks: sums of 8, which join as the digits of a binary counter do.
template <class Sum, class In, class Out>
[[gnu::always_inline]] inline void add_eights(Sum& sum, const Summands<In, Out>& summands,
                                              std::size_t offset) noexcept {
    static_assert(Summands<In, Out>::most == 64);
    add_tree<8>(sum, summands, 0, offset);
    Sum digits[] = {sum, sum, sum};
    std::size_t depth = 0;
    for (std::size_t q = 8; q < summands.ranks; q += 8) {
        digits[depth++] = sum;
        sum = Sum::of(summands.input(q) + offset);
        add_tree<8>(sum, summands, q, offset);
        for (std::size_t number = q / 8; number % 2 == 1; number /= 2) {
            Sum left = digits[--depth];
            left.add(sum);
            sum = left;
        }
    }
}

/// Stands for these ranks where a number of ranks is a template argument.
inline constexpr std::size_t tree_of_eights = 16;

/// Adds to `sums`, which are what input 0 has from `offset` on, Sum::count elements each, the other inputs: in rank
/// order, or along a tree of `Tree` ranks.
template <std::size_t Tree, class In, class Out, class... Sum>
[[gnu::always_inline]] inline void add_others(const Summands<In, Out>& summands, std::size_t offset,
                                              Sum&... sums) noexcept {
    if constexpr (Tree == tree_of_eights) {
        ((add_eights(sums, summands, offset), offset += Sum::count), ...);
    } else if constexpr (Tree != 0) {
        ((add_tree<Tree>(sums, summands, 0, offset), offset += Sum::count), ...);
    } else {
        std::size_t q = 1;
        do {  // tested at the end: a test before it would double the instructions, by moves between registers
            const In* from = summands.input(q) + offset;
            ((sums.add(from), from += Sum::count), ...);
        } while (++q < summands.ranks);
    }
}

}  // namespace shardkit::host::detail
