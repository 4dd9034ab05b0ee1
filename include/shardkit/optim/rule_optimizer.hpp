// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit::rules {

/// A rule says what one optimizer is, beside what all share; a struct per optimizer, AdamWRule for example.
///   Options       hyper-parameters, with learning_rate and weight_decay
///   ranges        an array of OptionRange: what each of them may be, also in the arithmetic of the updates; with it
///                 a `name`, which refusals begin with. What a range cannot say validate(options, where) refuses; a
///                 rule has one of the two or both
///   state_names   array of the states' names, of which the first state_count(options) exist with these options
///   Progress      what advances with a group's steps: `steps`, and running products, say
///   advance(progress, options)           counts one step
///   Update<A>     one element's step in float or double, see UpdateOf
///   update<A>(progress, options, scale)  makes it; `scale` is everything that multiplies the raw gradient
///   products      where Progress has more than `steps`: an array of ProgressProduct, by which checkpoints know
///                 the rest
/// Options, Progress and Update<A> are trivially copyable: they lie in the engine's memory. advance and update are
/// constexpr: they run where the kernels do.
template <class R>
concept OptimizerRule = requires(typename R::Progress& progress, const typename R::Options& options, double scale,
                                 SourceLocation where) {
    { R::state_names.size() } -> std::same_as<std::size_t>;
    { R::state_count(options) } -> std::same_as<std::size_t>;
    { options.learning_rate + options.weight_decay } -> std::same_as<double>;
    requires StatesRanges<R> || requires { validate(options, where); };
    { progress.steps } -> std::convertible_to<std::uint64_t>;
    R::advance(progress, options);
    { R::template update<float>(progress, options, scale) } -> std::same_as<typename R::template Update<float>>;
    { R::template update<double>(progress, options, scale) } -> std::same_as<typename R::template Update<double>>;
    requires std::is_trivially_copyable_v<typename R::Options>;
    requires std::is_trivially_copyable_v<typename R::Progress>;
    requires std::is_trivially_copyable_v<typename R::template Update<float>>;
    requires std::is_trivially_copyable_v<typename R::template Update<double>>;
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {
/// Whether a rule's products name all that its Progress has beside `steps`.
template <class Rule>
constexpr bool progress_is_named() {
    std::size_t members = 1;
    if constexpr (requires { Rule::products; }) { members += Rule::products.size(); }
    return sizeof(typename Rule::Progress) == 8 * members;
}
}  // namespace detail

}  // namespace shardkit

namespace shardkit::detail SHARDKIT_BUILD {

/// The functions of a rule whose loops this file compiles.
template <class Rule>
struct OwnFunctions {
    template <StateFormat Format>
    static const RuleFunctions& in() {
        return functions_of<rules::RuleIn<Rule, Format>, host::detail::RangeUpdates>;
    }
};

}  // namespace SHARDKIT_BUILD

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer made of a rule of your own, which derives from it: see docs/own_optimizer.md.
template <class Rule>
class RuleOptimizer
    : public shardkit::detail::ElementOptimizer<typename Rule::Options, shardkit::detail::OwnFunctions<Rule>> {
    static_assert(OptimizerRule<Rule>,
                  "RuleOptimizer<Rule>: Rule must satisfy OptimizerRule; see optim/rule_optimizer.hpp");
    static_assert(
        shardkit::detail::updates_alone<Rule>,
        "RuleOptimizer of a MatrixRule or a FactoredRule: derive from MatrixOptimizer or FactoredOptimizer");
    static_assert(shardkit::detail::progress_is_named<Rule>(),
                  "RuleOptimizer<Rule>: Rule::Progress has more than `steps`: Rule::products must name the rest");
    static_assert(shardkit::detail::fits_any_rule<Rule>(),
                  "RuleOptimizer<Rule>: a rule has at most 192 bytes of options, 128 of an update, 4 states and 4 "
                  "products");

  public:
    using RuleOptimizer::ElementOptimizer::ElementOptimizer;
};

}  // namespace SHARDKIT_BUILD
