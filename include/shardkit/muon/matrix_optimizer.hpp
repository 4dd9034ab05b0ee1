// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/muon/matrix_frame.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/spi/updates.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer of a MatrixRule over the parameters of a model that are matrices: Muon's part of Muon, or that of a
/// rule of your own. Beside an optimizer of the rest it is a part of a CombinedOptimizer.
/// Memory:  the rule's states for the elements that this rank updates, and the buffers that matrices travel through;
///          `bytes_of_exchange` says how much
template <class Rule>
class MatrixOptimizer : public detail::RuleOptimizer<typename Rule::Options, detail::MatrixFrame> {
    using Base = detail::RuleOptimizer<typename Rule::Options, detail::MatrixFrame>;
    using Loops = host::AnyKernels::Loops;
    static_assert(OptimizerRule<Rule> && MatrixRule<Rule>,
                  "MatrixOptimizer<Rule>: Rule must satisfy OptimizerRule and MatrixRule; see optim/matrix_rule.hpp");
    static_assert(detail::progress_is_named<Rule>() && detail::fits_any_rule<Rule>(),
                  "MatrixOptimizer<Rule>: Rule::products must name all that Rule::Progress has beside `steps`, and a "
                  "rule has at most 192 bytes of options, 128 of an update, 4 states and 4 products");

  public:
    /// Collective over the world.
    /// @param products  a MatrixProducts for float and double in the engine's memory
    /// @throws std::invalid_argument for hyper-parameters out of range, a parameter that has not two dimensions
    ///         without Matrices::units that say what of it is a matrix, blocks that do not divide its rows, ranks
    ///         that differ in them, or two groups with one path
    template <class Products>
    MatrixOptimizer(const Model& model, const Products& products, const typename Rule::Options& options,
                    const Matrices& matrices = {}, std::vector<ParamGroup> param_groups = {},
                    SourceLocation where = SourceLocation::current())
        : Base(model, {&detail::functions_of<Rule, Loops>, options}, detail::matrix_functions_of<Rule, Loops>,
               detail::AnyProducts<Stream>(products), matrices, std::move(param_groups), where) {}
};

}  // namespace shardkit::rules SHARDKIT_BUILD
