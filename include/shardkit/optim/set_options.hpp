// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// Hyper-parameters changed between steps: written in a stream's order, so that steps already given use the old ones.
template <class Options>
struct SetOptions {
    Options value;
    Options* to;  ///< the engine's memory

    constexpr void operator()() const { *to = value; }
};

}  // namespace shardkit
