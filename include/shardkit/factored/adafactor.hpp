// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/factored/adafactor_options.hpp>
#include <shardkit/factored/factored_frame.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit SHARDKIT_FACE {

/// Adafactor over a model of sharded groups, as torch.optim.Adafactor computes it: second moments by row and by
/// column, steps scaled by the size of the parameter and clipped by their own.
///     Adafactor optimizer{model, {.learning_rate = 1e-2}};
/// Memory:  one number for each row and each column of a matrix, and for each element of a vector, on every rank; and
///          one group's elements in the master's arithmetic type
/// Cost:    three passes over the gradients, and two sums over the world of as many doubles as there are rows and
///          columns
class Adafactor : public detail::RuleOptimizer<AdafactorOptions, detail::FactoredFrame> {
  public:
    /// @throws as FactoredOptimizer
    explicit Adafactor(const Model& model, const AdafactorOptions& options = {},
                       std::vector<ParamGroup> param_groups = {}, SourceLocation where = SourceLocation::current());
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/factored/adafactor_members.hpp>
#endif
