// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu::detail {

/// Combines the ranks' values element by element to their maximum or minimum, in Arithmetic<Out> and rounded once.
/// Rank q's elements begin at gathered + q * stride. A NaN of any rank is kept, which NCCL's own maxima and minima
/// drop (they use fmaxf and fminf). Each index computes one element, for Kernels::for_each_index.
template <class In, class Out>
struct Extremes {
    using A = Arithmetic<Out>;

    ReduceOp op;
    const In* gathered;
    std::size_t ranks;
    std::size_t stride;
    Out* output;

    constexpr void operator()(std::uint64_t i) const {
        A result = value(0, i);
        for (std::size_t q = 1; q < ranks; ++q) {
            const A next = value(q, i);
            const bool wins = op == ReduceOp::max ? result < next : next < result;
            if (wins || next != next) { result = next; }
        }
        output[i] = static_cast<Out>(result);
    }

  private:
    constexpr A value(std::size_t rank, std::uint64_t i) const {
        return static_cast<A>(static_cast<Arithmetic<In>>(gathered[rank * stride + i]));
    }
};

/// The ranks' rows begin at multiples of so many elements.
inline constexpr std::size_t row_alignment = 16;
constexpr std::size_t row_stride(std::size_t count) noexcept {
    return (count + row_alignment - 1) / row_alignment * row_alignment;
}

/// The elements that a rank has received from all ranks, and where their sums go: rank q's `count` elements begin at
/// gathered + q * row_stride(count). An index of a kernel adds up what one access loads of each row, in
/// Arithmetic<Out> and rounded once.
/// @pre `gathered` is aligned to 16 bytes, and there are several ranks
template <class In, class Out>
struct RankRows {
    using A = Arithmetic<Out>;
    static constexpr std::size_t lanes = lanes_for<In>;

    const In* gathered;
    std::size_t ranks;
    std::size_t count;
    Out* output;

    constexpr std::uint64_t indices() const { return (count + lanes - 1) / lanes; }

  protected:
    template <std::size_t Width>
    struct Sums {
        A lane[Width];

        constexpr void add(const Sums& other) {
            for (std::size_t i = 0; i < Width; ++i) { lane[i] += other.lane[i]; }
        }
    };
    template <std::size_t Width = lanes>
    constexpr Sums<Width> row(std::size_t rank, std::size_t at) const {
        const auto loaded = load<Width>(gathered + rank * row_stride(count) + at);
        Sums<Width> values{};
        for (std::size_t i = 0; i < Width; ++i) { values.lane[i] = converted<A>(loaded.lane[i]); }
        return values;
    }
    /// Sums along a subtree of the ranks, in registers.
    template <std::size_t Ranks, std::size_t Width = lanes>
    constexpr Sums<Width> subtree(std::size_t first, std::size_t at) const {
        if constexpr (Ranks == 1) {
            return row<Width>(first, at);
        } else {
            Sums<Width> sums = subtree<Ranks / 2, Width>(first, at);
            sums.add(subtree<Ranks / 2, Width>(first + Ranks / 2, at));
            return sums;
        }
    }
    constexpr void write(const Sums<lanes>& sums, std::size_t at) const {
        constexpr std::size_t wide = std::min(lanes, lanes_for<Out>);
        if (at + lanes <= count && elements_past_pack<wide>(output) == 0) {
            for (std::size_t i = 0; i < lanes; i += wide) {
                AlignedPack<Out, wide> pack{};
                for (std::size_t j = 0; j < wide; ++j) { pack.lane[j] = static_cast<Out>(sums.lane[i + j]); }
                store<wide>(pack, output + at + i);
            }
        } else {
            for (std::size_t i = 0; i < lanes; ++i) {
                if (at + i < count) { output[at + i] = static_cast<Out>(sums.lane[i]); }
            }
        }
    }
};

/// Adds the ranks' elements in rank order, for Kernels::for_each_index.
template <class In, class Out>
struct AddedInOrder : RankRows<In, Out> {
    constexpr void operator()(std::uint64_t index) const {
        const std::size_t at = static_cast<std::size_t>(index) * this->lanes;
        auto sums = this->row(0, at);
        std::size_t q = 1;
        for (; q + 4 <= this->ranks; q += 4) {  // a thread waits for the memory of four ranks at once
            const decltype(sums) rows[] = {this->row(q, at), this->row(q + 1, at), this->row(q + 2, at),
                                           this->row(q + 3, at)};
            for (const auto& each : rows) { sums.add(each); }
        }
        for (; q < this->ranks; ++q) { sums.add(this->row(q, at)); }
        this->write(sums, at);
    }
};

/// Adds the elements of up to 8 ranks along the tree of ReduceOp::tree_sum, for Kernels::for_each_index.
template <class In, class Out>
struct AddedAlongTree : RankRows<In, Out> {
    static constexpr std::size_t most = 8;

    constexpr void operator()(std::uint64_t index) const {
        const std::size_t at = static_cast<std::size_t>(index) * this->lanes;
        this->write(this->ranks == 2   ? this->template subtree<2>(0, at)
                    : this->ranks == 4 ? this->template subtree<4>(0, at)
                                       : this->template subtree<most>(0, at),
                    at);
    }
};

/// Adds the elements of 8 ranks and more along that tree: sums of 8, as the digits of a binary counter, all in
/// registers. A stack of sums in a thread's own memory would be reserved for every thread that a device can run. The
/// registers are why fewer ranks have another kernel: they leave room for few threads.
template <class In, class Out>
struct AddedByEights : RankRows<In, Out> {
    using RankRows<In, Out>::lanes;
    template <std::size_t Width>
    using Sums = typename RankRows<In, Out>::template Sums<Width>;
    /// The most ranks of which a thread adds whole loads: as many digits as 64 registers hold.
    static constexpr std::size_t levels = 256 / sizeof(Sums<lanes>);
    static constexpr std::size_t most = std::size_t{8} << levels;

    constexpr void operator()(std::uint64_t index) const {
        const std::size_t at = static_cast<std::size_t>(index) * lanes;
        if (this->ranks <= most) {
            this->write(sum<levels, lanes>(at), at);
        } else {  // element by element, of which the registers hold the digits of any number of ranks
            for (std::size_t i = at; i < std::min(at + lanes, this->count); ++i) {
                this->output[i] = static_cast<Out>(sum<28, 1>(i).lane[0]);
            }
        }
    }

  private:
    template <std::size_t Levels, std::size_t Width>
    constexpr Sums<Width> sum(std::size_t at) const {
        Sums<Width> digits[Levels] = {};
        Sums<Width> last = this->template subtree<8, Width>(0, at);
        for (std::size_t eight = 1; 8 * eight < this->ranks; ++eight) {
            put<0>(digits, last, eight - 1);
            last = this->template subtree<8, Width>(8 * eight, at);
            join<0>(digits, last, eight);
        }
        return last;
    }
    /// Puts the sum in the place of the lowest digit that is 0. Levels are counted by the compiler, as what a thread
    /// indexes lies in memory.
    template <std::size_t Level, std::size_t Levels, std::size_t Width>
    [[gnu::always_inline]] static constexpr void put(Sums<Width> (&digits)[Levels], const Sums<Width>& sum,
                                                     std::size_t number) {
        if constexpr (Level < Levels) {
            if (number % 2 == 0) {
                digits[Level] = sum;
            } else {
                put<Level + 1>(digits, sum, number / 2);
            }
        }
    }
    /// Adds the sum to those of all digits below the lowest that is 0.
    template <std::size_t Level, std::size_t Levels, std::size_t Width>
    [[gnu::always_inline]] static constexpr void join(const Sums<Width> (&digits)[Levels], Sums<Width>& sum,
                                                      std::size_t number) {
        if constexpr (Level < Levels) {
            if (number % 2 == 0) { return; }
            Sums<Width> left = digits[Level];
            left.add(sum);
            sum = left;
            join<Level + 1>(digits, sum, number / 2);
        }
    }
};

/// Gives the kernel that combines the ranks' rows: give(number of its indices, kernel).
template <class In, class Out, class Give>
void combine_rows(const engine::ReductionStep& step, const Give& give) {
    const auto* const gathered = static_cast<const In*>(step.from);
    auto* const output = static_cast<Out*>(step.to);
    const RankRows<In, Out> rows{gathered, step.ranks, step.count, output};
    if (step.op == ReduceOp::sum) {
        give(rows.indices(), AddedInOrder<In, Out>{rows});
    } else if (step.op == ReduceOp::tree_sum && rows.ranks <= AddedAlongTree<In, Out>::most) {
        give(rows.indices(), AddedAlongTree<In, Out>{rows});
    } else if (step.op == ReduceOp::tree_sum) {
        give(rows.indices(), AddedByEights<In, Out>{rows});
    } else {
        give(step.count, Extremes<In, Out>{step.op, gathered, step.ranks, step.stride, output});
    }
}

}  // namespace shardkit::gpu::detail
