// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <initializer_list>

#include <shardkit/core/source_location.hpp>

namespace shardkit::detail {

/// A hash of statements; 0 if there are none.
using StatementHash = std::uint64_t;

/// Returns a hash of `words`, appended to the words whose hash is `before`. Never 0.
/// Source: Fowler, Noll, Vo: FNV-1a, by words
template <std::unsigned_integral... Words>
constexpr StatementHash statement_hash(StatementHash before, Words... words) noexcept {
    for (const std::uint64_t word : {std::uint64_t{words}...}) {
        before = (before ^ 0xcbf29ce484222325ULL ^ word) * 0x100000001b3ULL;
        before ^= before >> 32U;
        before += before == 0 ? 1 : 0;
    }
    return before;
}

/// The statements of a rank about one step of a model: the divisor of the gradients, then the update.
struct StatedStep {
    double divisor = 0;
    StatementHash loss_scale = 0;  ///< hash of its options; 0 without a loss scale
    std::uint64_t uses = 0;        ///< number of uses of the loss scale, this one included
    SourceLocation reduced{};
    StatementHash assumed = 0;  ///< hash of sums that the program made and every rank holds; 0: none
    double assumed_sum = 0;     ///< the sum of the digested values, for the error text
    double other_divisor = 0;   ///< of a second loss in the backward pass; 0: none

    std::uint64_t number = 0;  ///< number of the optimizer's step, from 1; 0: the update has not begun
    double learning_rate = 0;
    double max_norm = 0;          ///< infinite: gradients are not clipped
    StatementHash optimizer = 0;  ///< hash of its kind and of its other hyper-parameters
    StatementHash shared = 0;     ///< the update_hash of the optimizer before it that shares the step; 0: none
    SourceLocation updated{};

    StatementHash gradients_hash() const noexcept {
        StatementHash made = statement_hash(1, std::bit_cast<std::uint64_t>(divisor), loss_scale, uses);
        if (other_divisor != 0) { made = statement_hash(made, std::bit_cast<std::uint64_t>(other_divisor)); }
        return assumed == 0 ? made : statement_hash(made, assumed);
    }
    StatementHash update_hash() const noexcept {
        const StatementHash made =
            statement_hash(2, number, optimizer, gradients_hash(), std::bit_cast<std::uint64_t>(learning_rate),
                           std::bit_cast<std::uint64_t>(max_norm));
        return shared == 0 ? made : statement_hash(made, shared);
    }
};

}  // namespace shardkit::detail
