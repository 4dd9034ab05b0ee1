// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/optim/any_launches.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/device_optimizers.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_frame.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/sharded/held_memory.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/group_list.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

// Defines the members of OptimizerFrame.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The narrowest arithmetic in which groups are updated.
inline ElementType narrowest_arithmetic(const Model& model, SourceLocation where) {
    ElementType narrowest = ElementType::fp64;
    for (const Group& group : spi::groups(model, where)) {
        if (group.geometry().arithmetic() == ElementType::fp32) { narrowest = ElementType::fp32; }
    }
    return narrowest;
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {

template <class F>
[[gnu::always_inline]] inline void OptimizerFrame::for_each_group(const F& f, SourceLocation where) {
    require_here(where);
    groups_->rewind();
    for (Group& group : spi::groups(model(), where)) { f(group, groups_->next(), groups_->table()); }
}
SHARDKIT_CORE_INLINE void OptimizerFrame::list(SourceLocation where) {
    groups_->start();
    for (Group& group : spi::groups(model(), where)) { groups_->list(group); }
}
SHARDKIT_CORE_INLINE void OptimizerFrame::make_tables(SourceLocation where) {
    auto& rank = numbers_->rank();
    groups_->upload(rank);
    list(where);
    groups_->prepare(rank, &numbers_->scalars()->skip, where);
}
SHARDKIT_CORE_INLINE std::uint64_t OptimizerFrame::run(const Reduced& reduced, const ClipCoefficient& coefficient,
                                                       const StepShare& share, SourceLocation where) {
    list(where);
    const StatementHash stated =
        numbers_->begin_step(reduced.stated(), reduced.loss_scale_, coefficient, share, where);
    try {
        groups_->run(numbers_->rank(), numbers_->scalars(), numbers_->engine_options(), numbers_->first(), where);
        numbers_->run_first();
    } catch (...) {  // some groups are updated, and one perhaps in part
        for (Group& group : spi::groups(model(), where)) {
            if (group.trainable() && !group.step().skipped()) { tear(group, "optimizer step", where); }
        }
        throw;
    }
    return stated;
}
SHARDKIT_CORE_INLINE StatementHash OptimizerFrame::begin_backward(const StatedStep& step, SourceLocation where) {
    if (const RuleKind kind = options(where).rule->kind(); kind != RuleKind::elements) {
        refuse_use(where,
                   kind == RuleKind::matrices
                       ? "optimizer step_in_backward: this optimizer's ranks exchange the matrices of all groups "
                         "at once; expected one that updates elements, or a step without step_in_backward"
                       : "optimizer step_in_backward: this optimizer adds numbers of all groups over the ranks at "
                         "once; expected one that updates elements, or a step without step_in_backward");
    }
    const StatementHash stated = numbers_->begin_step(step, nullptr, {}, {}, where);
    numbers_->run_first();
    return stated;
}
SHARDKIT_CORE_INLINE void OptimizerFrame::run_alone(Group& group) {
    groups_->run_alone(group, numbers_->scalars(), numbers_->engine_options());
}
SHARDKIT_CORE_INLINE void OptimizerFrame::tear(Group& torn, std::string_view verb, SourceLocation where) {
    const auto& group = groups_->group_of(torn);
    for (std::size_t p = 0; p < group.updated().size(); ++p) {
        if (!group.updates(p)) { continue; }
        torn.torn().begin(p, TornValues::parameters, verb, where);
        for (std::size_t s = 0; s < group.states_used(); ++s) {
            torn.torn().begin(p, group.state_name(s), verb, where);
        }
    }
}
SHARDKIT_CORE_INLINE std::uint64_t OptimizerFrame::choices(std::size_t number) const noexcept {
    return hash_of(numbers_->choices(number));
}
SHARDKIT_CORE_INLINE List<OptimizerFrame*> OptimizerFrame::parts() { return {this}; }
SHARDKIT_CORE_INLINE OptimizerFrame& OptimizerFrame::alone(std::string_view /*verb*/, SourceLocation /*where*/) {
    return *this;
}
SHARDKIT_CORE_INLINE const GroupProgress* OptimizerFrame::set_progress(const GroupProgress* of_groups, Change change,
                                                                       SourceLocation where) {
    const GroupProgress* behind = of_groups;
    // f(state, its group, the table, its progress) for those that it updates.
    const auto for_each = [&](const auto& f) {
        const GroupProgress* next = of_groups;
        for_each_group(
            [&](auto& state, auto& group, auto& table) {
                if (group.number()) { f(state, group, table, *next++); }
            },
            where);
    };
    bool as_chosen = true;
    for_each([&](auto& state, auto& group, auto& /*table*/, const GroupProgress& progress) {
        if (!group.cuts_at_blocks(progress)) {
            refuse_group(state, where,
                         "load: a parameter has grown by rows that begin inside a block of 8 bits, whose "
                         "elements would have taken different numbers of steps: expected "
                         "StateFormat::bf16 or full");
        }
        as_chosen = group.takes(progress) && as_chosen;
        ++behind;
    });
    if (!as_chosen && groups_->captured()) {
        refuse_use(where,
                   "load: parameters of one group have taken different numbers of steps, "
                   "for which the optimizer makes its tables anew, "
                   "and a graph has captured a step with the old ones: make a new optimizer before");
    }
    if (change == Change::check) { return behind; }
    if (as_chosen) {
        for_each([](auto& /*state*/, auto& group, auto& table, const GroupProgress& progress) {
            group.set_progress(progress, table);
        });
        return behind;
    }
    // The tables are made anew for parameters that had one choice of hyper-parameters and are not as far as each
    // other any more.
    groups_->restart();
    const GroupProgress* next = of_groups;
    for (Group& group : spi::groups(model(), where)) {
        next += groups_->choose(group, numbers_->param_groups(), next) ? 1 : 0;
    }
    make_tables(where);
    return behind;
}
SHARDKIT_CORE_INLINE const AnyOptions& OptimizerFrame::options(SourceLocation where) const {
    require_here(where);
    return numbers_->options();
}
SHARDKIT_CORE_INLINE double OptimizerFrame::given_learning_rate(SourceLocation where) const {
    require_here(where);
    return numbers_->given_rate();
}
SHARDKIT_CORE_INLINE void OptimizerFrame::set_options(const AnyOptions& options, SourceLocation where) {
    require_between_steps("set_options", where);
    AnyOptions its = options;
    its.rule = numbers_->options().rule;
    numbers_->set_options(its, where);
}
SHARDKIT_CORE_INLINE std::span<const ParamGroup> OptimizerFrame::param_groups(SourceLocation where) const {
    require_here(where);
    return numbers_->param_groups();
}
SHARDKIT_CORE_INLINE void OptimizerFrame::set_param_groups(std::vector<ParamGroup> param_groups,
                                                           SourceLocation where) {
    require_between_steps("set_param_groups", where);
    for (const ParamGroup& group : param_groups) { validate(group, where); }
    const std::span<const ParamGroup> to(param_groups.data(), param_groups.size());
    require_matches(model(), to, where);
    List<Statements> choices;
    for (Group& group : spi::groups(model(), where)) {
        numbers_->require_same_groups(group.geometry(), to, where);
        choices.push_back(param_group_statements(group.geometry(), to, where));
    }
    numbers_->set_param_groups(std::move(param_groups), std::move(choices), where);
}
SHARDKIT_CORE_INLINE std::size_t OptimizerFrame::bytes_beside_states(SourceLocation where) const {
    require_here(where);
    return groups_->bytes();
}

[[gnu::cold]] SHARDKIT_CORE_INLINE OptimizerFrame::OptimizerFrame(const Model& model, const AnyOptions& options,
                                                                  std::vector<ParamGroup> param_groups,
                                                                  SourceLocation where,
                                                                  Owned<spi::UpdateRunner>&& runner,
                                                                  Owned<spi::UpdateRunner>&& in_double)
    : Optimizer(model),
      numbers_(new OptimizerNumbers(rank_of(model, where), options, std::move(param_groups),
                                    narrowest_arithmetic(model, where), where)),
      groups_(new OptimizerGroups(std::move(runner), std::move(in_double))) {
    require_matches(model, numbers_->param_groups(), where);
    std::set<std::string_view> paths;
    for (Group& group : spi::groups(model, where)) {
        require_argument(paths.insert(group.path()).second, where, "optimizer: two groups have the path '",
                         group.path(), "'");
        numbers_->add_group(group.geometry(), where);
        const GroupOptimizer& its = groups_->add(group, options, numbers_->param_groups(), where);
        for (std::size_t p = 0; p < its.updated().size(); ++p) {
            const PlacedParameter& parameter = group.geometry().parameters[p];
            if (group.trainable() && !parameter.frozen && !its.updates(p)) {
                leave(concat(group.path(), ".", parameter.name));
            }
        }
    }
    make_tables(where);
}

[[gnu::cold]] SHARDKIT_CORE_INLINE OptimizerFrame::OptimizerFrame(const Model& model, const AnyOptions& options,
                                                                  std::vector<ParamGroup> param_groups,
                                                                  SourceLocation where)
    : OptimizerFrame(model, options, std::move(param_groups), where,
                     Owned<spi::UpdateRunner>(host_reads(rank_of(model, where).compute_stream())
                                                  ? new AnyLaunches
                                                  : on_device(where).make_launches()),
                     {}) {}
SHARDKIT_CORE_INLINE OptimizerFrame::OptimizerFrame(OptimizerFrame&&) noexcept = default;
SHARDKIT_CORE_INLINE OptimizerFrame& OptimizerFrame::operator=(OptimizerFrame&&) noexcept = default;
SHARDKIT_CORE_INLINE OptimizerFrame::~OptimizerFrame() = default;

}  // namespace shardkit::detail SHARDKIT_FACE

#include <shardkit/optim/optimizer_members.hpp>
