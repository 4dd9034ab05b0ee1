// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_FACE {

/// What optimizers with sums over whole parameters share, whatever their rule.
class FactoredFrame : public OptimizerFrame {
  public:
    FactoredFrame(const Model& model, const AnyOptions& options, const AnyFactoredRule& rule,
                  std::vector<ParamGroup> param_groups, SourceLocation where);

    /// The bytes of this rank's buffers for what is kept, the sums and the directions. They come on top of a
    /// planner::MemoryPlan, as planner::FactoredPlan says.
    /// @throws UsageError when it was moved from
    std::size_t bytes_of_passes(SourceLocation where = SourceLocation::current()) {
        return this->bytes_beside_states(where);
    }
};

}  // namespace shardkit::detail SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/factored/factored_members.hpp>
#endif
