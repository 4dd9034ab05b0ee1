// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <string_view>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/detail/access.hpp>
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
    if (!scope_.live()) {
        detail::Group::refuse_use(where, "reduced gradients used after an optimizer step consumed them");
    }
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
    for (const Group& group : Access::each(groups, where)) {
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
        for (Group& group : Access::each(groups, where)) { group.digest_reduced(step); }
    }
    const StatementHash stated = step.gradients_hash();
    if (StatementBook* const book = book_of(rank.world())) { book->note(step); }
    for (Group& group : Access::each(groups, where)) { group.statements().set_gradients(stated); }
    return step;
}

/// Returns the use of a loss scale in a step of the model, which its first group identifies; null: of none.
inline LossScaleUse use_of(LossScale* loss_scale, const Model& groups, SourceLocation where) {
    if (loss_scale == nullptr) { return {}; }
    if (groups.size() > 0) {
        const Group& first = *Access::each(groups, where);
        Access::bind(*loss_scale, ModelName{first.identity(), first.path(), &first.rank()}, where);
    }
    return Access::use(*loss_scale, where);
}

SHARDKIT_CORE_INLINE Reduced reduce(Accumulation&& accumulation, const Divisor& divisor, LossScale* loss_scale,
                                    SourceLocation where) {
    const Model& groups = Access::groups(accumulation, where);
    const LossScaleUse use = use_of(loss_scale, groups, where);
    if (Access::backward(accumulation).get() != nullptr) {
        Group::refuse_use(where,
                          "reduce: the groups of this accumulation are updated in its backward pass, which "
                          "releases their gradients; expected optimizer.step(std::move(accumulation))");
    }
    const StatedStep stated = state_divisor(groups, divisor, use, where);
    return Access::make<Reduced>(Access::finish(std::move(accumulation), where), stated, use.state);
}
SHARDKIT_CORE_INLINE Reduced assume_reduced(const Model& groups, const Divisor& divisor, LossScale* loss_scale,
                                            SourceLocation where) {
    const LossScaleUse use = use_of(loss_scale, groups, where);
    StepScope scope(groups, 0, where);
    for (Group& group : Access::each(groups, where)) {
        group.step().require_release(group.path(), "assume_reduced", where);
        group.step().assume_reduced();
    }
    const StatedStep stated = state_divisor(groups, divisor, use, where, true);
    return Access::make<Reduced>(std::move(scope), stated, use.state);
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
