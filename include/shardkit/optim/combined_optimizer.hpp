// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit SHARDKIT_FACE {

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
    CombinedOptimizer(const Model& model, const std::vector<std::reference_wrapper<Optimizer>>& parts,
                      SourceLocation where = SourceLocation::current());
    CombinedOptimizer(CombinedOptimizer&&) = delete;
    CombinedOptimizer& operator=(CombinedOptimizer&&) = delete;
    ~CombinedOptimizer() override;

  private:
    void require_here(SourceLocation where) const override;
    std::uint64_t run(const Reduced& reduced, const ClipCoefficient& coefficient, const detail::StepShare& share,
                      SourceLocation where) override;
    std::uint64_t choices(std::size_t number) const noexcept override;
    detail::List<detail::OptimizerFrame*> parts() override;
    detail::OptimizerFrame& alone(std::string_view verb, SourceLocation where) override;

    detail::Owned<detail::CombinedParts> parts_;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/optim/combined_members.hpp>
#endif
