// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/muon/matrix_launches.hpp>
#include <shardkit/muon/matrix_placement.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns a ParamGroup's condition for what is a matrix, as `matrices` says.
inline auto are_matrices(const Model& model, const Matrices& matrices) {
    auto chosen = std::make_shared<std::set<std::pair<std::string, std::string>>>();
    for (const Group& group : Access::each(model, SourceLocation{})) {
        for (const PlacedParameter& p : group.geometry().parameters) {
            if (is_matrix(matrices, group.path(), p)) { chosen->emplace(group.path(), p.name); }
        }
    }
    return [chosen](std::string_view path, std::string_view parameter) {
        return chosen->contains({std::string(path), std::string(parameter)});
    };
}
inline std::vector<ParamGroup> with_rest(const Model& model, const Matrices& matrices,
                                         std::vector<ParamGroup> param_groups, SourceLocation where) {
    for (const ParamGroup& group : param_groups) { validate(group, where); }
    require_matches(model, {param_groups.data(), param_groups.size()}, where);
    const auto is_matrix = are_matrices(model, matrices);
    bool all = true;
    for (const Group& group : Access::each(model, where)) {
        for (const PlacedParameter& p : group.geometry().parameters) { all = all && is_matrix(group.path(), p.name); }
    }
    if (!all) {
        param_groups.insert(param_groups.begin(),
                            {.matches = [is_matrix](auto path, auto name) { return !is_matrix(path, name); },
                             .updated_by = UpdatedBy::another});
    }
    return param_groups;
}
template <class Rule>
Owned<OptimizerGroups> matrix_groups(const AnyProducts<Stream>& products, const Matrices& matrices) {
    using Launched = LaunchedGroups<MatrixLaunches<Rule, float>, MatrixLaunches<Rule, double>>;
    return Owned<OptimizerGroups>(new Launched(MatrixSetup{products, matrices}));
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer of a MatrixRule over the parameters of a model that are matrices: Muon's part of Muon, or that of a
/// rule of your own. Beside an optimizer of the rest it is a part of a CombinedOptimizer.
/// Memory:  the rule's states for the elements that this rank updates, and the buffers that matrices travel through;
///          `bytes_of_exchange` says how much
template <class Rule>
class MatrixOptimizer : public detail::RuleOptimizer<typename Rule::Options> {
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
        : detail::RuleOptimizer<typename Rule::Options>(
              model, {&detail::functions_of<Rule, host::AnyKernels::Loops>, options},
              detail::with_rest(model, matrices, std::move(param_groups), where), where,
              detail::matrix_groups<Rule>(detail::AnyProducts<Stream>(products), matrices)) {}

    /// The bytes of this rank's buffers for whole matrices: those that they travel through, those that the rule works
    /// in and what it keeps of matrices that the rank owns. They come on top of a planner::MemoryPlan.
    /// @throws UsageError when it was moved from
    std::size_t bytes_of_exchange(SourceLocation where = SourceLocation::current()) {
        return this->bytes_beside_states(where);
    }
};

}  // namespace shardkit::rules SHARDKIT_BUILD
