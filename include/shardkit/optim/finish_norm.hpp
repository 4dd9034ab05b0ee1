// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace shardkit {

/// After the partial sums were added over all ranks: adds them up in shard order, so that every policy and rank gets
/// the same bits. Run once, in a stream's order; engine memory.
struct FinishNorm {
    std::span<const double> partials;  ///< sum of squares and non-finite count of each shard
    double* total;                     ///< the two sums

    constexpr void operator()() const {
        double sum_of_squares = 0;
        double nonfinite = 0;
        for (std::size_t i = 0; i < partials.size(); i += 2) {
            sum_of_squares += partials[i];
            nonfinite += partials[i + 1];
        }
        total[0] = sum_of_squares;
        total[1] = nonfinite;
    }
};

}  // namespace shardkit
