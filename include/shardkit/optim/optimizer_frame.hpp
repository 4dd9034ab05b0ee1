// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/optim/any_launches.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The narrowest arithmetic in which groups are updated.
inline ElementType narrowest_arithmetic(const Model& model, SourceLocation where) {
    ElementType narrowest = ElementType::fp64;
    for (const Group& group : Access::each(model, where)) {
        if (group.geometry().arithmetic() == ElementType::fp32) { narrowest = ElementType::fp32; }
    }
    return narrowest;
}

/// What an optimizer of elements keeps of its groups.
using ElementGroups = LaunchedGroups<AnyLaunches, NoLaunches>;
inline std::unique_ptr<OptimizerGroups> any_groups() { return std::make_unique<ElementGroups>(); }

/// What all rules' optimizers share: states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups and each step's updates.
class OptimizerFrame : public Optimizer {
  public:
    using Options = AnyOptions;

    /// @throws std::invalid_argument for hyper-parameters out of range, a ParamGroup that decides for no parameter,
    ///         or two groups with one path
    /// @param groups  what is to have the model's groups
    OptimizerFrame(const Model& model, const AnyOptions& options, std::vector<ParamGroup> param_groups,
                   SourceLocation where, std::unique_ptr<OptimizerGroups> groups = any_groups());

    const AnyOptions& options() const noexcept { return numbers_.options(); }
    /// The learning rate that was given last, which set_learning_rate_factor multiplies.
    double given_learning_rate() const noexcept { return numbers_.given_rate(); }
    void set_options(const AnyOptions& options, SourceLocation where) {
        require_between_steps("set_options", where);
        numbers_.set_options(options, where);
    }
    std::span<const ParamGroup> param_groups() const noexcept { return numbers_.param_groups(); }
    /// Replaces what ParamGroups give, likewise. Each is of the same parameters as before.
    ///     std::vector groups(optimizer.param_groups().begin(), optimizer.param_groups().end());
    ///     groups[0].weight_decay = decay_of(step);
    ///     optimizer.set_param_groups(std::move(groups));
    /// @throws  std::invalid_argument for what is out of range, or a parameter that another group matches than before
    void set_param_groups(std::vector<ParamGroup> param_groups, SourceLocation where = SourceLocation::current()) {
        require_between_steps("set_param_groups", where);
        for (const ParamGroup& group : param_groups) { validate(group, where); }
        const std::span<const ParamGroup> to(param_groups.data(), param_groups.size());
        require_matches(model(), to, where);
        List<Statements> choices;
        for (Group& group : Access::each(model(), where)) {
            numbers_.require_same_groups(group.geometry(), to, where);
            choices.push_back(param_group_statements(group.geometry(), to, where));
        }
        numbers_.set_param_groups(std::move(param_groups), std::move(choices), where);
    }

  protected:
    /// The bytes of this rank's buffers beside states.
    std::size_t bytes_beside_states(SourceLocation where) const {
        require_here(where);
        return groups_->bytes();
    }

  private:
    friend Access;
    friend UpdatesOfOptimizer;
    friend shardkit::Optimizer;
    friend shardkit::CombinedOptimizer;

    /// f(group, its GroupOptimizer, the table with its progress) for every group, in order.
    template <class F>
    [[gnu::always_inline]] void for_each_group(const F& f, SourceLocation where) {
        require_here(where);
        groups_->rewind();
        for (Group& group : Access::each(model(), where)) { f(group, groups_->next(), groups_->table()); }
    }
    void list(SourceLocation where) {
        groups_->start();
        for (Group& group : Access::each(model(), where)) { groups_->list(group); }
    }

    /// Once all groups have chosen their hyper-parameters.
    void make_tables(SourceLocation where) {
        auto& rank = numbers_.rank();
        groups_->upload(rank);
        list(where);
        groups_->prepare(rank, &numbers_.scalars()->skip, where);
    }

    StatementHash run(const Reduced& reduced, const ClipCoefficient& coefficient, const StepShare& share,
                      SourceLocation where) override {
        list(where);
        const StatementHash stated =
            numbers_.begin_step(Access::stated(reduced), Access::loss_scale(reduced), coefficient, share, where);
        try {
            groups_->run(numbers_.rank(), numbers_.scalars(), numbers_.engine_options(), numbers_.first(), where);
            numbers_.run_first();
        } catch (...) {  // some groups are updated, and one perhaps in part
            for (Group& group : Access::each(model(), where)) {
                if (group.trainable() && !group.step().skipped()) { tear(group, "optimizer step", where); }
            }
            throw;
        }
        return stated;
    }
    /// Begins a step whose groups are updated one by one. @returns what ranks state of it
    StatementHash begin_backward(const StatedStep& step, SourceLocation where) {
        if (const RuleKind kind = options().rule->kind(); kind != RuleKind::elements) {
            Group::refuse_use(
                where,
                kind == RuleKind::matrices
                    ? "optimizer step_in_backward: this optimizer's ranks exchange the matrices of all groups "
                      "at once; expected one that updates elements, or a step without step_in_backward"
                    : "optimizer step_in_backward: this optimizer adds numbers of all groups over the ranks at "
                      "once; expected one that updates elements, or a step without step_in_backward");
        }
        const StatementHash stated = numbers_.begin_step(step, nullptr, {}, {}, where);
        numbers_.run_first();
        return stated;
    }
    /// Gives the update of one group to the compute stream.
    /// @pre a step in backward has begun
    void run_alone(Group& group) {
        static_cast<ElementGroups&>(*groups_).run_alone(group, numbers_.scalars(), numbers_.engine_options());
    }
    /// Marks as torn what it has updated of a group.
    void tear(Group& torn, std::string_view verb, SourceLocation where) {
        const auto& group = groups_->group_of(torn);
        for (std::size_t p = 0; p < group.updated().size(); ++p) {
            if (!group.updates(p)) { continue; }
            torn.torn().begin(p, TornValues::parameters, verb, where);
            for (std::size_t s = 0; s < group.states_used(); ++s) {
                torn.torn().begin(p, group.state_name(s), verb, where);
            }
        }
    }
    const StatementsHandle& choices(std::size_t number) const noexcept override { return numbers_.choices(number); }
    List<OptimizerFrame*> parts() override { return {this}; }
    OptimizerFrame& alone(std::string_view /*verb*/, SourceLocation /*where*/) override { return *this; }
    /// Which parameters of a group it updates.
    const List<char>& updated(const Group& group) { return groups_->group_of(group).updated(); }

    /// What it holds of each group that it updates, in order.
    List<OptimizerMemory> held(SourceLocation where) {
        List<OptimizerMemory> all;
        for_each_group(
            [&](auto& state, auto& group, auto& /*table*/) {
                if (!group.number()) { return; }
                OptimizerMemory& its = all.push_back({&state, &group.reader(), options().rule->name(), {}});
                group.list(state.geometry(), its.held);
                groups_->list_own_shapes(state, its.held);
            },
            where);
        return all;
    }
    /// How far its updates of each of these groups are. Waits for the compute stream.
    List<GroupProgress> progress(SourceLocation where) {
        List<GroupProgress> all;
        for_each_group(
            [&](auto& /*state*/, auto& group, auto& table) {
                if (group.number()) { all.push_back(group.progress(table)); }
            },
            where);
        return all;
    }
    /// Sets that, or refuses it.
    void set_progress(std::span<const GroupProgress> of_groups, Change change, SourceLocation where) {
        // f(state, its group, the table, its progress) for those that it updates.
        const auto for_each = [&](const auto& f) {
            const GroupProgress* next = of_groups.data();
            for_each_group(
                [&](auto& state, auto& group, auto& table) {
                    if (group.number()) { f(state, group, table, *next++); }
                },
                where);
        };
        bool as_chosen = true;
        for_each([&](auto& state, auto& group, auto& /*table*/, const GroupProgress& progress) {
            if (!group.cuts_at_blocks(progress)) {
                state.refuse_group(where,
                                   "load: a parameter has grown by rows that begin inside a block of 8 bits, whose "
                                   "elements would have taken different numbers of steps: expected "
                                   "StateFormat::bf16 or full");
            }
            as_chosen = group.takes(progress) && as_chosen;
        });
        if (!as_chosen) { require_not_captured(where); }
        if (change == Change::check) { return; }
        if (as_chosen) {
            return for_each([](auto& /*state*/, auto& group, auto& table, const GroupProgress& progress) {
                group.set_progress(progress, table);
            });
        }
        // The tables are made anew for parameters that had one choice of hyper-parameters and are not as far as each
        // other any more.
        groups_->restart();
        const GroupProgress* next = of_groups.data();
        for (Group& group : Access::each(model(), where)) {
            next += groups_->choose(group, numbers_.param_groups(), next) ? 1 : 0;
        }
        make_tables(where);
    }
    /// The hash of its hyper-parameters in the engine's memory. Waits likewise.
    StatementHash hyper_parameters(SourceLocation where) { return numbers_.read_hash(where); }
    void require_not_captured(SourceLocation where) {
        if (!groups_->captured()) { return; }
        Group::refuse_use(where,
                          "load: parameters of one group have taken different numbers of steps, "
                          "for which the optimizer makes its tables anew, "
                          "and a graph has captured a step with the old ones: make a new optimizer before");
    }

    OptimizerNumbers numbers_;
    std::unique_ptr<OptimizerGroups> groups_;
};

inline OptimizerFrame::OptimizerFrame(const Model& model, const AnyOptions& options,
                                      std::vector<ParamGroup> param_groups, SourceLocation where,
                                      std::unique_ptr<OptimizerGroups> groups)
    : Optimizer(model),
      numbers_(options, std::move(param_groups), narrowest_arithmetic(model, where), where),
      groups_(std::move(groups)) {
    require_matches(model, this->param_groups(), where);
    auto& rank = detail::rank_of(model, where);
    for (Group& group : Access::each(model, where)) {
        numbers_.add_group(rank, group.geometry(), where);
        groups_->add(group, options, numbers_.param_groups(), where);
    }
    numbers_.begin(rank);
    make_tables(where);
    for_each_group(
        [this](auto& state, auto& group, auto& /*table*/) {
            for (std::size_t p = 0; p < group.updated().size(); ++p) {
                const PlacedParameter& parameter = state.geometry().parameters[p];
                if (state.trainable() && !parameter.frozen && !group.updates(p)) {
                    leave(concat(state.path(), ".", parameter.name));
                }
            }
        },
        where);
}

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

inline double Optimizer::learning_rate() const {
    return const_cast<Optimizer&>(*this).leading("learning_rate", {}).options().learning_rate;
}
inline void Optimizer::set_learning_rate(double learning_rate, SourceLocation where) {
    detail::OptimizerFrame& first = leading("set_learning_rate", where);
    const auto all = parts();
    if (all.size() == 1) {
        first.require_between_steps("set_learning_rate", where);
        return first.numbers_.set_learning_rate(learning_rate, learning_rate, where);
    }
    const double given = first.given_learning_rate();
    if (given == 0) {
        throw_invalid_argument(where, "Muon: set_learning_rate of ", detail::number_text(learning_rate),
                               " where its matrices were given a rate of 0 and AdamW one of ",
                               detail::number_text(all.back()->given_learning_rate()),
                               "; expected set_learning_rate_factor with rates that are given once, or "
                               "set_learning_rate of matrices() and of rest()");
    }
    set_rates(learning_rate, given, where);
}
inline void Optimizer::set_rates(double to, double from, SourceLocation where) {
    for (const bool make : {false, true}) {
        for (detail::OptimizerFrame* const part : parts()) {
            part->require_between_steps("set_learning_rate", where);
            const double rate = to * (part->given_learning_rate() / from);
            part->numbers_.require_learning_rate(rate, where);
            if (make) { part->numbers_.set_learning_rate(rate, part->given_learning_rate(), where); }
        }
    }
}
inline std::uint64_t Optimizer::steps_of(const detail::Group& group, SourceLocation where) const {
    require_here(where);
    bool known = false;
    for (const detail::Group& each : detail::Access::each(model_, where)) { known = known || &each == &group; }
    if (!known) { group.refuse_group(where, "steps() of a group that is not one of the optimizer's model"); }
    // Parts whose tensors a load has brought together may have taken different numbers.
    std::uint64_t most = 0;
    for (const detail::OptimizerFrame* const part : const_cast<Optimizer&>(*this).parts()) {
        const std::uint64_t its = part->groups_->steps(group.identity());
        if (its > most) { most = its; }
    }
    return most;
}
inline std::vector<ShardInfo> Optimizer::shards() {
    std::vector<ShardInfo> list;
    detail::Access::for_each_state(
        *this, [&](const auto& group, const auto& each) { list_shards(group.geometry(), each, list); },
        SourceLocation{});
    return list;
}

}  // namespace shardkit SHARDKIT_BUILD

#include <shardkit/optim/step_in_backward.hpp>
