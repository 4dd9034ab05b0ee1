// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/verb.hpp>

namespace shardkit {

/// Messages that follow each other in a ring of `ranks`: an all-reduce is a reduce-scatter and an all-gather.
/// Source:  Thakur, Rabenseifner and Gropp 2005, section 4; Chan et al. 2007
constexpr double ring_messages(Verb verb, std::size_t ranks) noexcept {
    const double others = ranks > 1 ? static_cast<double>(ranks - 1) : 0;
    switch (verb) {
        case Verb::all_gather:
        case Verb::reduce_scatter:
        case Verb::all_to_all:
        case Verb::broadcast:
            return others;
        case Verb::all_reduce:
            return 2 * others;
        default:
            return ranks > 1 ? 1 : 0;
    }
}

}  // namespace shardkit
