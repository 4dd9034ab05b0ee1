// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/optimizer_members.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

// Defines the members of CombinedOptimizer.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The parts of a CombinedOptimizer, and what they update.
struct CombinedParts {
    /// What the parts have of one group.
    struct OfGroup {
        struct Part {
            const OptimizerFrame* optimizer;
            std::size_t number;  ///< of the group among its own
        };
        std::vector<Part> parts;
        StatementHash chosen = 0;  ///< of what `choices` is of
        StatementsHandle choices;
    };

    CombinedParts(const Model& model, const std::vector<std::reference_wrapper<Optimizer>>& given,
                  SourceLocation where)
        : parts_(given) {
        constexpr auto nobody = static_cast<std::size_t>(-1);
        std::map<std::uint64_t, std::size_t> numbers;    // of the groups, by identity
        std::vector<std::vector<std::size_t>> updaters;  // the part that updates each parameter
        for (const Group& group : spi::groups(model, where)) {
            numbers.emplace(group.identity(), groups_.size());
            groups_.emplace_back();
            updaters.emplace_back(group.geometry().parameters.size(), nobody);
        }
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            Optimizer& part = parts_[p];
            identities_.push_back(part.identity_);
            part.require_here(where);
            for (OptimizerFrame* const frame : part.parts()) {
                std::size_t n = 0;
                for (const Group& group : spi::groups(frame->model(), where)) {
                    const auto found = numbers.find(group.identity());
                    require_argument(found != numbers.end(), where, "CombinedOptimizer: '", group.path(),
                                     "' of part ", p, " is no group of the model");
                    const List<char>& its = frame->groups_->group_of(group).updated();
                    for (std::size_t i = 0; i < its.size(); ++i) {
                        if (its[i] == 0) { continue; }
                        const std::size_t before = std::exchange(updaters[found->second][i], p);
                        if (before == nobody) { continue; }
                        throw_invalid_argument(where, "CombinedOptimizer: '", group.path(), ".",
                                               group.geometry().parameters[i].name, "' is updated by parts ", before,
                                               " and ", p,
                                               "; expected a ParamGroup with UpdatedBy::another in all but one");
                    }
                    groups_[found->second].parts.push_back({frame, n++});
                }
            }
        }
        std::size_t number = 0;
        for (const Group& group : spi::groups(model, where)) {
            const std::vector<std::size_t>& its = updaters[number++];
            for (std::size_t i = 0; i < its.size(); ++i) {
                const PlacedParameter& parameter = group.geometry().parameters[i];
                if (its[i] != nobody || !group.trainable() || parameter.frozen) { continue; }
                throw_invalid_argument(where, "CombinedOptimizer: no part updates '", group.path(), ".",
                                       parameter.name, "', expected one, or a Frozen parameter");
            }
        }
    }
    void require_here(SourceLocation where) const {
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Optimizer& part = parts_[p];
            if (part.identity_ == identities_[p] && part.model_.valid()) {
                part.require_here(where);
                continue;
            }
            throw_usage_error(where, "CombinedOptimizer: part ", p,
                              " was moved from or assigned to since it was made one; expected parts that stay where "
                              "they are: make the CombinedOptimizer anew");
        }
    }
    std::uint64_t run(const Model& model, const Reduced& reduced, const ClipCoefficient& coefficient,
                      const StepShare& share, SourceLocation where) {
        list_choices(model);
        StepShare its = share;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            its.adapts = share.adapts && i + 1 == parts_.size();
            its.before = parts_[i].get().run(reduced, coefficient, its, where);
        }
        return its.before;
    }
    List<OptimizerFrame*> all() {
        List<OptimizerFrame*> all;
        for (Optimizer& part : parts_) {
            const auto its = part.parts();
            all.append(its.begin(), its.end());
        }
        return all;
    }

    /// Joins what the ParamGroups of the parts choose, where that is new.
    void list_choices(const Model& model) {
        for (OfGroup& group : groups_) {
            StatementHash chosen = 0;
            for (const auto& part : group.parts) {
                chosen = statement_hash(chosen, part.optimizer->choices(part.number));
            }
            if (chosen == group.chosen) { continue; }
            Statements all;
            for (const auto& part : group.parts) {
                if (const auto& its = part.optimizer->numbers_->choices(part.number)) {
                    all.append(its->statements.begin(), its->statements.end());
                }
            }
            auto* const book = book_of(rank_of(model, {}).world());
            group.choices = book == nullptr || all.empty() ? StatementsHandle() : book->keep(std::move(all));
            group.chosen = chosen;
        }
    }

    std::vector<std::reference_wrapper<Optimizer>> parts_;
    std::vector<std::uint64_t> identities_;  // of them
    std::vector<OfGroup> groups_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE CombinedOptimizer::CombinedOptimizer(const Model& model,
                                                          const std::vector<std::reference_wrapper<Optimizer>>& parts,
                                                          SourceLocation where)
    : Optimizer(model), parts_(new detail::CombinedParts(model, parts, where)) {}
SHARDKIT_CORE_INLINE CombinedOptimizer::~CombinedOptimizer() = default;
SHARDKIT_CORE_INLINE void CombinedOptimizer::require_here(SourceLocation where) const {
    Optimizer::require_here(where);
    parts_->require_here(where);
}
SHARDKIT_CORE_INLINE std::uint64_t CombinedOptimizer::run(const Reduced& reduced, const ClipCoefficient& coefficient,
                                                          const detail::StepShare& share, SourceLocation where) {
    return parts_->run(model(), reduced, coefficient, share, where);
}
SHARDKIT_CORE_INLINE std::uint64_t CombinedOptimizer::choices(std::size_t number) const noexcept {
    return hash_of(parts_->groups_[number].choices);
}
SHARDKIT_CORE_INLINE detail::List<detail::OptimizerFrame*> CombinedOptimizer::parts() { return parts_->all(); }
SHARDKIT_CORE_INLINE detail::OptimizerFrame& CombinedOptimizer::alone(std::string_view verb, SourceLocation where) {
    throw_usage_error(where, "CombinedOptimizer: ", verb, " of several optimizers; expected that of a part");
}

}  // namespace SHARDKIT_FACE
