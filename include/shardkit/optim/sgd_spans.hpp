// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/core/element.hpp>

namespace shardkit {

/// What one SGD pass reads and writes; `gathered` as for AdamWSpans, `momentum_buffer` is empty under
/// Momentum::none.
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient>
struct SgdSpans {
    using A = Arithmetic<Master>;

    std::span<Master> master;
    std::span<Gather> gathered;
    std::span<const Gradient> gradient;
    std::span<A> momentum_buffer;
};

}  // namespace shardkit
