// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// What one AdamW pass reads and writes; all spans have the same number of elements and none overlap.
/// `gathered` is the next all-gather's source; it is empty where the master itself is that source.
/// @post (of the pass) gathered[i] is master[i], as stored, converted to Gather
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient>
struct AdamWSpans {
    using A = Arithmetic<Master>;

    std::span<Master> master;
    std::span<Gather> gathered;
    std::span<const Gradient> gradient;
    std::span<A> exp_avg;
    std::span<A> exp_avg_sq;
};

}  // namespace shardkit
