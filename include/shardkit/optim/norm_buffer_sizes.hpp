// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/exact_sum.hpp>

namespace shardkit::detail {

/// The number of global norms whose totals a rank keeps in its engine's memory at a time; later norms reuse them in
/// turn.
inline constexpr std::size_t norm_slots = 16;

/// The numbers (doubles) of global norms: how many a rank keeps and sends.
struct NormNumbers {
    /// The numbers that a norm sends over the world: the sum of squares (an ExactSum), and the count of elements that
    /// are not finite.
    static constexpr std::size_t sent = ExactSum::numbers + 1;
    /// The numbers of one norm's scratch buffer: the scale of the gradients, then what is sent.
    static constexpr std::size_t scratch = 1 + sent;
    /// The numbers of all kept totals, two for each.
    static constexpr std::size_t totals = 2 * norm_slots;
};

}  // namespace shardkit::detail
