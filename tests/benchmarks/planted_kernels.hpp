// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../../benchmarks/kernels/run_kernels.hpp"

namespace benchmarks::kernels {

inline constexpr std::size_t planted_elements = 1000;

/// Kernels that compute what K's do, and then spoil one element. In memory that the host can write.
template <class K>
struct Planted : K {
    template <class S, class Update, class Spans>
    static void update(const S& stream, std::span<const shardkit::rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip, const Spans& spans) {
        K::update(stream, ranges, updates, skip, spans);
        stream.synchronize();
        if constexpr (Spans::state_count == 2) {
            spans.states[0][planted_elements - 1] += 1e-3F;
        } else {
            spans.master[0] += 1e-3F;
        }
    }
    template <class S, class T>
    static void norm_partial(const S& stream, std::span<const shardkit::engine::NormPiece<T>> pieces,
                             shardkit::IndexRange positions, const double* scale, double* into) {
        K::norm_partial(stream, pieces, positions, scale, into);
        stream.synchronize();
        into[shardkit::detail::NormSum::numbers - 1] += 1;
    }
    template <class S, class From, class To>
    static void convert(const S& stream, std::span<const From> from, std::span<To> to) {
        K::convert(stream, from, to);
        stream.synchronize();
        to[7] = static_cast<To>(static_cast<float>(to[7]) * 2);
    }
    template <class S, class Addend, class Sum>
    static void accumulate(const S& stream, std::span<const Addend> addend, std::span<Sum> total) {
        K::accumulate(stream, addend, total);
        stream.synchronize();
        total[planted_elements / 2] += 1;
    }
    template <shardkit::engine::TensorCopy Way, class S, class T>
    static void copy_tensors(const S& stream, std::span<const shardkit::engine::TensorPiece<T>> table,
                             std::span<T> flat) {
        K::template copy_tensors<Way>(stream, table, flat);
        stream.synchronize();
        (Way == shardkit::engine::TensorCopy::pack ? flat[planted_elements - 1] : table[table.size() - 1].tensor[0]) =
            T{};
    }
};

}  // namespace benchmarks::kernels
