// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit SHARDKIT_BUILD {

/// Several optimizers that train one model together, each some of its parameters: one norm, one clipping, one step.
///     Lion lion{model, {.learning_rate = 1e-4}, {{.matches = not_a_matrix, .updated_by = UpdatedBy::another}}};
///     AdamW adamw{model, {.learning_rate = 1e-3}, {{.matches = a_matrix, .updated_by = UpdatedBy::another}}};
///     CombinedOptimizer optimizer{model, {lion, adamw}};
/// An optimizer may be that of some of the groups as well. Learning rates and options are set in the parts;
/// set_learning_rate_factor is of all of them. The parts
/// outlive it and stay where they are, which a step refuses otherwise; so does a class that has it as a member.
/// Memory:  nothing of its own. Of a group that has parameters of several parts, each part has states for all
///          elements that the rank updates
/// Cost:    of a step: two small launches for each part, and one pass over a group's elements for each part that has
///          parameters of it
class CombinedOptimizer : public Optimizer {
  public:
    /// @throws std::invalid_argument, with the parameter's name, for one that no part updates, or that two do; for a
    ///         part with a group that is not the model's
    CombinedOptimizer(const Model& model, std::vector<std::reference_wrapper<Optimizer>> parts,
                      SourceLocation where = SourceLocation::current())
        : Optimizer(model), parts_(std::move(parts)) {
        constexpr auto nobody = static_cast<std::size_t>(-1);
        std::vector<std::vector<std::size_t>> updaters;  // the part that updates each parameter
        for (const detail::Group& group : detail::Access::each(model, where)) {
            numbers_.emplace(group.identity(), groups_.size());
            groups_.emplace_back().updated.resize(group.geometry().parameters.size());
            updaters.emplace_back(group.geometry().parameters.size(), nobody);
        }
        for (std::size_t p = 0; p < parts_.size(); ++p) { take(p, updaters, where); }
        std::size_t number = 0;
        for (const detail::Group& group : detail::Access::each(model, where)) {
            const detail::List<char>& updated = groups_[number++].updated;
            for (std::size_t i = 0; i < updated.size(); ++i) {
                const PlacedParameter& parameter = group.geometry().parameters[i];
                if (updated[i] != 0 || !group.trainable() || parameter.frozen) { continue; }
                throw_invalid_argument(where, "CombinedOptimizer: no part updates '", group.path(), ".",
                                       parameter.name, "', expected one, or a Frozen parameter");
            }
        }
    }
    CombinedOptimizer(CombinedOptimizer&&) = delete;
    CombinedOptimizer& operator=(CombinedOptimizer&&) = delete;

  private:
    /// What the parts have of one group.
    struct OfGroup {
        struct Part {
            const detail::OptimizerFrame* optimizer;
            std::size_t number;  ///< of the group among its own
        };
        std::vector<Part> parts;
        detail::List<char> updated;        ///< of each parameter
        detail::StatementHash chosen = 0;  ///< of what `choices` is of
        detail::StatementsHandle choices;
    };

    void require_here(SourceLocation where) const override {
        Optimizer::require_here(where);
        for (std::size_t p = 0; p < parts_.size(); ++p) {
            const Optimizer& part = parts_[p];
            if (part.identity_ == identities_[p] && !detail::Access::moved_from(part.model_)) {
                part.require_here(where);
                continue;
            }
            throw_usage_error(where, "CombinedOptimizer: part ", p,
                              " was moved from or assigned to since it was made one; expected parts that stay where "
                              "they are: make the CombinedOptimizer anew");
        }
    }
    [[noreturn]] static void refuse(SourceLocation where, std::string_view verb) {
        throw_usage_error(where, "CombinedOptimizer: ", verb, " of several optimizers; expected that of a part");
    }

    detail::StatementHash run(const Reduced& reduced, const ClipCoefficient& coefficient,
                              const detail::StepShare& share, SourceLocation where) override {
        list_choices();
        detail::StepShare its = share;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            its.adapts = share.adapts && i + 1 == parts_.size();
            its.before = parts_[i].get().run(reduced, coefficient, its, where);
        }
        return its.before;
    }
    const detail::StatementsHandle& choices(std::size_t number) const noexcept override {
        return groups_[number].choices;
    }
    detail::OptimizerFrame& alone(std::string_view verb, SourceLocation where) override { refuse(where, verb); }
    detail::List<detail::OptimizerFrame*> parts() override {
        detail::List<detail::OptimizerFrame*> all;
        for (Optimizer& part : parts_) {
            const auto its = part.parts();
            all.append(its.begin(), its.end());
        }
        return all;
    }

    /// Takes in part number `p`. `updaters`: the part that updates each parameter of each group.
    void take(std::size_t p, std::vector<std::vector<std::size_t>>& updaters, SourceLocation where) {
        Optimizer& part = parts_[p];
        identities_.push_back(part.identity_);
        part.require_here(where);
        for (detail::OptimizerFrame* const frame : part.parts()) { take(p, *frame, updaters, where); }
    }
    void take(std::size_t p, detail::OptimizerFrame& frame, std::vector<std::vector<std::size_t>>& updaters,
              SourceLocation where) {
        std::size_t n = 0;
        for (const detail::Group& group : detail::Access::each(frame.model(), where)) {
            const detail::List<char>& its = frame.updated(group);
            const auto found = numbers_.find(group.identity());
            if (found == numbers_.end()) {
                throw_invalid_argument(where, "CombinedOptimizer: '", group.path(), "' of part ", p,
                                       " is no group of the model");
            }
            const std::size_t number = found->second;
            OfGroup& of = groups_[number];
            for (std::size_t i = 0; i < its.size(); ++i) {
                if (its[i] == 0) { continue; }
                if (of.updated[i] != 0) {
                    throw_invalid_argument(where, "CombinedOptimizer: '", group.path(), ".",
                                           group.geometry().parameters[i].name, "' is updated by parts ",
                                           updaters[number][i], " and ", p,
                                           "; expected a ParamGroup with UpdatedBy::another in all but one");
                }
                of.updated[i] = 1;
                updaters[number][i] = p;
            }
            of.parts.push_back({&frame, n++});
        }
    }
    /// Joins what the ParamGroups of the parts choose, where that is new.
    void list_choices() {
        for (OfGroup& group : groups_) {
            detail::StatementHash chosen = 0;
            for (const auto& part : group.parts) {
                chosen = detail::statement_hash(chosen, hash_of(part.optimizer->choices(part.number)));
            }
            if (chosen == group.chosen) { continue; }
            detail::Statements all;
            for (const auto& part : group.parts) {
                if (const auto& its = part.optimizer->choices(part.number)) {
                    all.append(its->statements.begin(), its->statements.end());
                }
            }
            auto* const book = detail::book_of(detail::rank_of(this->model(), {}).world());
            group.choices = book == nullptr || all.empty() ? detail::StatementsHandle() : book->keep(std::move(all));
            group.chosen = chosen;
        }
    }

    std::vector<std::reference_wrapper<Optimizer>> parts_;
    std::vector<std::uint64_t> identities_;  // of them
    std::vector<OfGroup> groups_;
    std::map<std::uint64_t, std::size_t> numbers_;  // of them, by identity
};

}  // namespace shardkit SHARDKIT_BUILD
