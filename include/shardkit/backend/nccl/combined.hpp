// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::nccl::detail {

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
    static constexpr std::size_t lanes = gpu::detail::lanes_for<In>;

    const In* gathered;
    std::size_t ranks;
    std::size_t count;
    Out* output;

    constexpr std::uint64_t indices() const { return (count + lanes - 1) / lanes; }

  protected:
    struct Sums {
        A lane[lanes];

        constexpr void add(const Sums& other) {
            for (std::size_t i = 0; i < lanes; ++i) { lane[i] += other.lane[i]; }
        }
    };
    constexpr Sums row(std::size_t rank, std::size_t at) const {
        const auto loaded = gpu::detail::load<lanes>(gathered + rank * row_stride(count) + at);
        Sums values{};
        for (std::size_t i = 0; i < lanes; ++i) { values.lane[i] = gpu::detail::converted<A>(loaded.lane[i]); }
        return values;
    }
    constexpr void write(const Sums& sums, std::size_t at) const {
        constexpr std::size_t wide = std::min(lanes, gpu::detail::lanes_for<Out>);
        if (at + lanes <= count && gpu::detail::elements_past_pack<wide>(output) == 0) {
            for (std::size_t i = 0; i < lanes; i += wide) {
                gpu::detail::AlignedPack<Out, wide> pack{};
                for (std::size_t j = 0; j < wide; ++j) { pack.lane[j] = static_cast<Out>(sums.lane[i + j]); }
                gpu::detail::store<wide>(pack, output + at + i);
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
            const typename RankRows<In, Out>::Sums rows[] = {this->row(q, at), this->row(q + 1, at),
                                                             this->row(q + 2, at), this->row(q + 3, at)};
            for (const auto& each : rows) { sums.add(each); }
        }
        for (; q < this->ranks; ++q) { sums.add(this->row(q, at)); }
        this->write(sums, at);
    }
};

/// Adds the ranks' elements along the tree of ReduceOp::tree_sum, for Kernels::for_each_index: up to 8 ranks in
/// registers, and then the sums of 8, as the digits of a binary counter.
template <class In, class Out>
struct AddedAlongTree : RankRows<In, Out> {
    using Sums = typename RankRows<In, Out>::Sums;

    constexpr void operator()(std::uint64_t index) const {
        const std::size_t at = static_cast<std::size_t>(index) * this->lanes;
        this->write(this->ranks == 2   ? subtree<2>(0, at)
                    : this->ranks == 4 ? subtree<4>(0, at)
                    : this->ranks == 8 ? subtree<8>(0, at)
                                       : of_many(at),
                    at);
    }

  private:
    constexpr Sums of_many(std::size_t at) const {
        Sums finished[33] = {};
        std::size_t depth = 0;
        for (std::size_t q = 0; q < this->ranks; q += 8) {
            finished[depth++] = subtree<8>(q, at);
            for (std::size_t subtrees = q / 8; subtrees % 2 == 1; subtrees /= 2) {
                --depth;
                finished[depth - 1].add(finished[depth]);
            }
        }
        return finished[0];
    }
    template <std::size_t Ranks>
    constexpr Sums subtree(std::size_t first, std::size_t at) const {
        if constexpr (Ranks == 1) {
            return this->row(first, at);
        } else {
            Sums sums = subtree<Ranks / 2>(first, at);
            sums.add(subtree<Ranks / 2>(first + Ranks / 2, at));
            return sums;
        }
    }
};

}  // namespace shardkit::nccl::detail
