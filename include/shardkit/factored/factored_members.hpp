// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <utility>
#include <vector>

#include <shardkit/detail/owned.hpp>
#include <shardkit/factored/factored_frame.hpp>
#include <shardkit/factored/factored_launches.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/spi/update_runner.hpp>
#include <shardkit/step/model.hpp>

// Defines the members of FactoredFrame.

namespace shardkit::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE FactoredFrame::FactoredFrame(const Model& model, const AnyOptions& options,
                                                  const AnyFactoredRule& rule, std::vector<ParamGroup> param_groups,
                                                  SourceLocation where)
    : OptimizerFrame(model, options, std::move(param_groups), where,
                     Owned<spi::UpdateRunner>(new FactoredLaunches<float>(&rule)),
                     Owned<spi::UpdateRunner>(new FactoredLaunches<double>(&rule))) {}

}  // namespace shardkit::detail SHARDKIT_FACE
