// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <string_view>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/group_list.hpp>
#include <shardkit/step/loss_scale_members.hpp>
#include <shardkit/step/reduce.hpp>

// Defines the members of Reduced, and what makes one.

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Reduced::Reduced(detail::StepScope scope, const detail::StatedStep& stated,
                                      LossScaleState* loss_scale) noexcept
    : scope_(std::move(scope)), stated_(stated), loss_scale_(loss_scale), identity_(detail::new_identity()) {}
SHARDKIT_CORE_INLINE const Model& Reduced::groups(SourceLocation where) const {
    if (!scope_.live()) { detail::refuse_use(where, "reduced gradients used after an optimizer step consumed them"); }
    return scope_.groups();
}
SHARDKIT_CORE_INLINE void Reduced::require(const detail::Group& group, std::string_view verb,
                                           SourceLocation where) const {
    static_cast<void>(groups(where));
    group.require_accumulation(scope_.number(), verb, where);
}

}  // namespace SHARDKIT_FACE

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns the number by which a model's sums of gradients are divided.
inline double divisor_of(const Model& groups, const Divisor& divisor, SourceLocation where) {
    std::size_t averaged = 1;
    for (const Group& group : spi::groups(groups, where)) {
        averaged = group.averaged();
        if (group.trainable()) { break; }
    }
    return divisor.of(averaged);
}

/// Adds the divisor and the loss scale to what ranks compare in later collectives of these groups. `assumed` means
/// that the program made the sums itself, which are then compared too.
inline StatedStep state_divisor(const Model& groups, const Divisor& divisor, const LossScaleUse& loss_scale,
                                SourceLocation where, bool assumed = false) {
    auto& rank = detail::rank_of(groups, where);
    StatedStep step{divisor_of(groups, divisor, where), loss_scale.stated, loss_scale.number, where};
    step.other_divisor = divisor.other();
    if (assumed) {
        for (Group& group : spi::groups(groups, where)) { group.digest_reduced(step); }
    }
    const StatementHash stated = step.gradients_hash();
    if (StatementBook* const book = book_of(rank.world())) { book->note(step); }
    for (Group& group : spi::groups(groups, where)) { group.statements().set_gradients(stated); }
    return step;
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

/// Returns the use of a loss scale in a step of the model, which its first group identifies; null: of none.
inline detail::LossScaleUse Reduced::use_of(LossScale* loss_scale, const Model& groups, SourceLocation where) {
    if (loss_scale == nullptr) { return {}; }
    if (groups.size() > 0) {
        const detail::Group& first = *spi::groups(groups, where);
        loss_scale->bind({first.identity(), first.path(), &first.rank()}, where);
    }
    return loss_scale->use(where);
}
SHARDKIT_CORE_INLINE Reduced Reduced::of(Accumulation&& accumulation, const Divisor& divisor, LossScale* loss_scale,
                                         SourceLocation where) {
    const Model& groups = accumulation.groups(where);
    const detail::LossScaleUse use = use_of(loss_scale, groups, where);
    if (accumulation.backward_.get() != nullptr) {
        detail::refuse_use(where,
                           "reduce: the groups of this accumulation are updated in its backward pass, which "
                           "releases their gradients; expected optimizer.step(std::move(accumulation))");
    }
    const detail::StatedStep stated = detail::state_divisor(groups, divisor, use, where);
    return Reduced(std::move(accumulation).finish(where), stated, use.state);
}
SHARDKIT_CORE_INLINE Reduced Reduced::of(const Model& groups, const Divisor& divisor, LossScale* loss_scale,
                                         SourceLocation where) {
    const detail::LossScaleUse use = use_of(loss_scale, groups, where);
    detail::StepScope scope(groups, 0, where);
    for (detail::Group& group : spi::groups(groups, where)) {
        group.step().require_release(group.path(), "assume_reduced", where);
        group.step().assume_reduced();
    }
    const detail::StatedStep stated = detail::state_divisor(groups, divisor, use, where, true);
    return Reduced(std::move(scope), stated, use.state);
}

}  // namespace SHARDKIT_FACE
