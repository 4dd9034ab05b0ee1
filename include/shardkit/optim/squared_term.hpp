// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace shardkit {

/// One element's term of the squared norm, in arithmetic type A; V as for AdamWUpdate. The gradient is scaled
/// before it is squared, so that a loss scale does not make the square overflow.
template <std::floating_point A>
struct SquaredTerm {
    A scale;

    template <class V>
    [[gnu::always_inline]] constexpr V operator()(V gradient) const {
        const V scaled = scale * gradient;
        return scaled * scaled;
    }
};

}  // namespace shardkit
