// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/optim/any_launches.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/step/precisions.hpp>

namespace shardkit::rules {

/// A rule says what one optimizer is, beside what all share; a struct per optimizer, AdamWRule for example:
///   Options       hyper-parameters, with learning_rate and weight_decay
///   ranges        an array of OptionRange: what each of them may be, also in the arithmetic of the updates; with it
///   a
///                 `name`, which refusals begin with. What a range cannot say validate(options, where) refuses; a
///                 rule has one of the two or both
///   state_names   array of the states' names, of which the first state_count(options) exist with these options
///   Progress      what advances with a group's steps: `steps`, and running products, say
///   advance(progress, options)           counts one step
///   Update<A>     one element's step in float or double, see UpdateOf
///   update<A>(progress, options, scale)  makes it; `scale` is everything that multiplies the raw gradient
///   products      where Progress has more than `steps`: an array of ProgressProduct, by which checkpoints know the
///   rest
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

/// Makes what an optimizer whose launches know element types has of the groups of a precision.
template <class Rule, class P>
std::unique_ptr<OptimizerGroups<Rule>> groups_of(const MatrixSetup& setup) {
    using Gather = typename P::Gather;
    using Reduction = typename P::Reduction;
    using Own = typename LaunchesOf<Rule, UpdateTypes<typename P::Master, Gather, Reduction>>::type;
    using Stored = typename LaunchesOf<Rule, UpdateTypes<Gather, Gather, Reduction>>::type;
    using Made = LaunchedGroups<Rule, Own, std::conditional_t<can_drop_master<P>, Stored, NoLaunches>>;
    auto made = std::make_unique<Made>(&element_table<P>);
    if constexpr (rules::MatrixRule<Rule>) {
        made->for_each([&](auto& launches) { launches.set_up(setup); });
    }
    return made;
}
/// The same of a rule that is a value, whose loops know them.
inline BatchesOf<AnyRule> any_groups() {
    BatchesOf<AnyRule> all;
    all.push_back(std::make_unique<LaunchedGroups<AnyRule, AnyLaunches, NoLaunches>>(nullptr));
    return all;
}

/// Which rule a rule's optimizer is compiled for: an AnyRule for one of elements, and itself where its updates are
/// larger than usual.
template <class Rule>
struct FrameRuleOf {
    static_assert(rules::OptimizerRule<Rule>,
                  "RuleOptimizer<Rule, ...>: Rule must satisfy OptimizerRule; see optim/rule_optimizer.hpp");
    using type = Rule;
    template <class... P>
    static const typename Rule::Options& given(const typename Rule::Options& options, Precisions<P...> /*types*/) {
        return options;
    }
    static const typename Rule::Options& back(const typename Rule::Options& options) { return options; }
    template <class... P>
    static BatchesOf<Rule> batches(const MatrixSetup& setup, Precisions<P...> /*types*/) {
        BatchesOf<Rule> all;
        (all.push_back(groups_of<Rule, P>(setup)), ...);
        return all;
    }
};
template <rules::OptimizerRule Rule>
requires(updates_alone<Rule>&& fits_any_rule<Rule>()) struct FrameRuleOf<Rule> {
    using type = AnyRule;
    template <class... P>
    static AnyOptions given(const typename Rule::Options& options, Precisions<P...> /*types*/) {
        return {&functions_of<Rule, host::AnyKernels::Loops>, options};
    }
    static typename Rule::Options back(const AnyOptions& options) { return options.as<typename Rule::Options>(); }
    static BatchesOf<AnyRule> batches(const MatrixSetup& /*setup*/, auto /*types*/) { return any_groups(); }
};

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit::rules SHARDKIT_BUILD {

/// An optimizer made of a rule. AdamW, SGD and the others derive from it, and so does one of your own; see
/// docs/own_optimizer.md.
template <class Rule, class PrecisionType>
class RuleOptimizer : public detail::OptimizerFrame<typename detail::FrameRuleOf<Rule>::type> {
    static_assert(
        detail::progress_is_named<Rule>(),
        "RuleOptimizer<Rule, ...>: Rule::Progress has more than `steps`: Rule::products must name the rest");
    static_assert(
        detail::StorageOf<Rule>::type::format == StateFormat::full ||
            detail::computes_in_fp32(detail::PrecisionsOf<PrecisionType>{}),
        "states in bf16 or in blocks of 8 bits are those of updates in fp32: expected StateFormat::full for "
        "a master of fp64");
    using As = detail::FrameRuleOf<Rule>;
    using Frame = detail::OptimizerFrame<typename As::type>;
    static constexpr detail::PrecisionsOf<PrecisionType> types{};

  public:
    using Options = typename Rule::Options;

    /// @param setup  a MatrixRule's, which makes it collective over the world
    /// @throws std::invalid_argument for hyper-parameters out of range, a ParamGroup that decides for no parameter,
    /// or
    ///         two groups with one path
    RuleOptimizer(const Model<PrecisionType>& model, const Options& options, std::vector<ParamGroup> param_groups,
                  SourceLocation where, const detail::MatrixSetup& setup = {})
        : Frame(model, As::given(options, types), std::move(param_groups), where, As::batches(setup, types)) {}

    Options options() const { return As::back(Frame::options()); }
    /// Replaces all hyper-parameters, the learning rate too; takes effect with the next step. What a ParamGroup gives
    /// stays that group's. A bias correction is by the products of the betas that the steps were made with.
    /// Order:   stream-ordered; local work. Ranks compare the hyper-parameters with the next step's.
    /// @throws  std::invalid_argument for what is out of range, or another number of states (another Momentum, say):
    ///          nothing has changed then
    void set_options(const Options& options, SourceLocation where = SourceLocation::current()) {
        Frame::set_options(As::given(options, types), where);
    }
};

}  // namespace shardkit::rules SHARDKIT_BUILD

namespace shardkit::detail SHARDKIT_BUILD {
template <class Rule, class Options, class Precision, StateFormat Format>
using RuleOptimizerIn = rules::RuleOptimizer<rules::RuleIn<Rule, Format>, Precision>;
}  // namespace shardkit::detail SHARDKIT_BUILD
