// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include <shardkit/core/finite.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/step/loss_scale_state.hpp>

// What a norm has to do beside its sums of elements.

namespace shardkit::detail {

/// Before a norm's sums: *scale becomes what every gradient is multiplied by, the sums zero. Run once, in a stream's
/// order; all pointers lead into the engine's memory.
struct BeginNorm {
    double divisor_scale;
    const LossScaleState* loss_scale;  ///< null without one
    double* scale;
    std::span<double> sums;

    constexpr void operator()() const {
        *scale = detail::unscale(divisor_scale, loss_scale);
        for (double& sum : sums) { sum = 0; }
    }
};

/// After the sums of elements that other ranks count: keeps of them what is not finite. Run once; engine memory.
struct KeepNonfinite {
    double* sums;

    constexpr void operator()() const { NormSum::keep_nonfinite(sums); }
};

/// After the sums were added over all ranks: rounds them, or squares the largest magnitude. Run once, in a stream's
/// order, as a work of its own or the first of a step's; engine memory.
struct FinishNorm {
    const double* sum = nullptr;  ///< a NormSum that travelled, or the two of BeginInfinityNorm; null: nothing to do
    double* total = nullptr;      ///< two: sum of squares and non-finite count
    NormKind kind = NormKind::two;

    static constexpr std::size_t most_reads = NormSum::numbers;
    /// Returns what it reads, so that as many threads can load it.
    constexpr std::span<const double> reads() const noexcept {
        return {sum, sum == nullptr ? 0 : kind == NormKind::two ? most_reads : 2};
    }
    constexpr void operator()() const { (*this)(sum); }
    constexpr void operator()(const double* read) const {
        if (sum == nullptr) { return; }
        if (kind == NormKind::two) {
            const NormTotal rounded = NormSum(read).total();
            total[0] = rounded.sum_of_squares;
            total[1] = rounded.nonfinite;
        } else {
            total[0] = read[1] > 0 ? std::numeric_limits<double>::quiet_NaN() : read[0] * read[0];
            total[1] = read[1] > 0 || !is_finite(read[0]) ? 1 : 0;
        }
    }
};
static_assert(NormNumbers::sent == NormSum::numbers);

/// Of an infinity norm, this rank's largest magnitude and whether there is a NaN. Run once.
struct BeginInfinityNorm {
    std::span<const PartialNorms> norms;
    double* largest;  ///< two: the magnitude, and 1 for a NaN

    constexpr void operator()() const {
        PartialNorms all;
        for (const PartialNorms& each : norms) { all.add(each); }
        largest[0] = all.largest;
        largest[1] = all.nan;
    }
};

}  // namespace shardkit::detail
