// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_FACE {

/// What optimizers of whole matrices share, whatever their rule.
class MatrixFrame : public OptimizerFrame {
  public:
    MatrixFrame(const Model& model, const AnyOptions& options, const AnyMatrixRule& rule,
                const AnyProducts<Stream>& products, const Matrices& matrices, std::vector<ParamGroup> param_groups,
                SourceLocation where);

    /// The bytes of this rank's buffers for whole matrices: those that they travel through, those that the rule works
    /// in and what it keeps of matrices that the rank owns. They come on top of a planner::MemoryPlan.
    /// @throws UsageError when it was moved from
    std::size_t bytes_of_exchange(SourceLocation where = SourceLocation::current()) {
        return this->bytes_beside_states(where);
    }
};

}  // namespace shardkit::detail SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/muon/matrix_members.hpp>
#endif
