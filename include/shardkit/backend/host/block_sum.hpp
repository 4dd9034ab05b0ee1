// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>

#include <shardkit/backend/host/lanes.hpp>

namespace shardkit::host::detail {

/// The sum of term(element) over one block, in A: element i goes to partial sum i mod partial_sums<A>, then
/// the halves are added to each other until one is left. Missing elements at the end count as zeros.
/// @pre term(0) is 0
template <std::floating_point A, FloatingElement T, class Term>
A block_sum(std::span<const T> block, const Term& term) {
    return use_avx2() ? avx2::block_sum<A>(block.data(), block.size(), term)
                      : compiled::block_sum<A>(block.data(), block.size(), term);
}

}  // namespace shardkit::host::detail
