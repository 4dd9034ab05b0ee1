// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Returns what an optimizer states beside each step's learning rate: what it is, and its other hyper-parameters.
[[gnu::cold]] inline Statements optimizer_statements(const AnyOptions& options, SourceLocation where) {
    Statements stated{{"optimizer", options.rule->name(), where}};
    for (auto& [name, text] : options.rule->statements(options)) {
        stated.push_back({std::move(name), std::move(text), where});
    }
    return stated;
}

/// All hyper-parameters that an optimizer's parameters may have: its own, and those of each group.
/// @throws std::invalid_argument as options_of
[[gnu::cold]] inline List<ChosenOptions> chosen_options(const AnyOptions& options, std::span<const ParamGroup> groups,
                                                        SourceLocation where) {
    List<ChosenOptions> chosen(2 + 2 * groups.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const ParamGroup* const group = i < 2 ? nullptr : &groups[i / 2 - 1];
        const AnyOptions its = group == nullptr ? options : options_of(*group, options, where);
        chosen[i] = {group == nullptr ? 1 : group->learning_rate_scale, its};
        if (i % 2 == 1) { chosen[i].options.weight_decay = group == nullptr ? 0 : group->weight_decay.value_or(0); }
    }
    return chosen;
}

/// Returns what a ParamGroup gives, in words.
[[gnu::cold]] inline std::string param_group_text(const ParamGroup& group) {
    if (group.updated_by == UpdatedBy::another) { return "another optimizer's"; }
    std::string text = concat("learning_rate_scale ", number_text(group.learning_rate_scale));
    const auto add = [&](std::string_view name, const std::optional<double>& given, auto /*member*/) {
        if (given) { append(text, ", ", name, " ", number_text(*given)); }
    };
    add("weight_decay", group.weight_decay, 0);
    for_each_own(group, add);
    return text;
}

/// Refuses ParamGroups that would have no effect: that match no parameter of the model, or only such as an earlier
/// one matches. What is another optimizer's may be given to both.
/// @throws std::invalid_argument that says what the group gives, and names parameters of the model
[[gnu::cold]] inline void require_matches(const Model& model, std::span<const ParamGroup> param_groups,
                                          SourceLocation where) {
    for (std::size_t g = 0; g < param_groups.size(); ++g) {
        std::size_t earlier = no_param_group;
        std::size_t parameters = 0;
        std::string known;
        bool decides = false;
        for (const Group& group : spi::groups(model, where)) {
            for (const PlacedParameter& p : group.geometry().parameters) {
                constexpr std::size_t most = 32;
                if (++parameters <= most) {
                    append(known, parameters == 1 ? "" : ", ", "'", group.path(), ".", p.name, "'");
                }
                if (!param_groups[g].matches(group.path(), p.name)) { continue; }
                const std::size_t first = param_group_of(group.path(), p.name, param_groups);
                decides = decides || first == g || is_left_out(first, param_groups);
                earlier = first;
            }
        }
        if (decides) { continue; }
        const std::string its = concat("optimizer: ParamGroup ", g, " (", param_group_text(param_groups[g]), ")");
        if (earlier != no_param_group) {
            throw_invalid_argument(where, its, " matches only parameters that ParamGroup ", earlier,
                                   " or another earlier one matches, of which the first decides; expected it before "
                                   "these, or parameters of its own");
        }
        throw_invalid_argument(where, its, " matches no parameter of the model, expected some of ", known,
                               parameters > 32 ? concat(" and ", parameters - 32, " more") : std::string());
    }
}

/// Returns what ParamGroups choose for the parameters of one group.
[[gnu::cold]] inline Statements param_group_statements(const GroupGeometry& in,
                                                       std::span<const ParamGroup> param_groups,
                                                       SourceLocation where) {
    Statements stated;
    for (const PlacedParameter& parameter : in.parameters) {
        const std::size_t g = param_group_of(in.path, parameter.name, param_groups);
        const bool gives = g != no_param_group && (!parameter.frozen || is_left_out(g, param_groups));
        const std::string text = gives ? param_group_text(param_groups[g]) : "none";
        stated.push_back({concat("ParamGroup of '", in.path, "' parameter '", parameter.name, "'"), text, where});
    }
    return stated;
}

/// Holds what an Optimizer has besides its groups' states: its numbers, here and in the engine's memory.
class OptimizerNumbers {
  public:
    /// @param arithmetic  the narrowest that updates elements
    /// @throws std::invalid_argument for hyper-parameters out of range
    [[gnu::cold]] OptimizerNumbers(Rank& rank, const AnyOptions& options, std::vector<ParamGroup> param_groups,
                                   ElementType arithmetic, SourceLocation where)
        : options_(options),
          arithmetic_(arithmetic),
          given_rate_(options.learning_rate),
          rank_(&rank),
          param_groups_(std::move(param_groups)) {
        for (const ParamGroup& group : param_groups_) { validate(group, where); }
        require_options(options, this->param_groups(), where);
        // Here, so that the first step allocates nothing but the norm's buffers.
        static_cast<void>(rank.kept<NormMemory>());
        const auto chosen = chosen_options(options, this->param_groups(), where);
        engine_options_ = {rank, chosen.data(), chosen.size()};
        scalars_ = EngineTable<StepScalars>(rank, StepScalars{});
    }

    /// Adds one more group.
    void add_group(const GroupGeometry& group, SourceLocation where) {
        choices_.emplace_back();
        StatementBook* const its = rank_->world_size() > 1 ? book() : nullptr;
        if (its == nullptr) { return; }
        if (stated_ == nullptr) { stated_ = its->keep(optimizer_statements(options_, where)); }
        if (!param_groups_.empty()) {
            choices_.back() = its->keep(param_group_statements(group, param_groups(), where));
        }
    }
    const AnyOptions& options() const noexcept { return options_; }
    std::span<const ParamGroup> param_groups() const noexcept { return {param_groups_.data(), param_groups_.size()}; }
    Rank& rank() const noexcept { return *rank_; }
    /// Returns the learning rate that was given last, of which that of the options may be a part.
    double given_rate() const noexcept { return given_rate_; }
    /// @throws std::invalid_argument for what is out of range
    void require_learning_rate(double learning_rate, SourceLocation where) const {
        AnyOptions changed = options_;
        changed.learning_rate = learning_rate;
        require_options(changed, param_groups(), where);
    }
    /// Sets that of the next steps.
    /// @throws std::invalid_argument likewise
    void set_learning_rate(double learning_rate, double given, SourceLocation where) {
        require_learning_rate(learning_rate, where);
        options_.learning_rate = learning_rate;
        given_rate_ = given;
        const ChosenOptions own{1, options_};
        write(std::span(&own, 1));
    }
    /// @throws std::invalid_argument for hyper-parameters out of range, or with another number of states
    void set_options(const AnyOptions& options, SourceLocation where) {
        require_options(options, param_groups(), where);
        const std::size_t states = options.rule->state_count(options);
        if (states != options_.rule->state_count(options_)) {
            throw_invalid_argument(where, options.rule->name(), ": set_options for an optimizer with ", states,
                                   " states, expected as many as it was made with, ",
                                   options_.rule->state_count(options_));
        }
        const auto chosen = chosen_options(options, param_groups(), where);
        if (stated_ != nullptr) { stated_ = book()->keep(optimizer_statements(options, where)); }
        options_ = options;
        given_rate_ = options.learning_rate;
        write(chosen.span());
    }
    /// That other ParamGroups are of the same parameters. @throws std::invalid_argument
    void require_same_groups(const GroupGeometry& group, std::span<const ParamGroup> others,
                             SourceLocation where) const {
        for (const PlacedParameter& p : group.parameters) {
            const std::size_t before = param_group_of(group.path, p.name, param_groups());
            const std::size_t now = param_group_of(group.path, p.name, others);
            if (before == now && is_left_out(now, others) == is_left_out(before, param_groups())) { continue; }
            throw_invalid_argument(where, "set_param_groups: '", group.path, ".", p.name, "' is of ",
                                   in_words(now, others), ", expected ", in_words(before, param_groups()),
                                   ", as the optimizer was made");
        }
    }
    /// `choices`: what they choose for each group.
    /// @throws std::invalid_argument for hyper-parameters out of range
    void set_param_groups(std::vector<ParamGroup> param_groups, List<Statements> choices, SourceLocation where) {
        require_options(options_, std::span<const ParamGroup>(param_groups), where);
        const auto chosen = chosen_options(options_, std::span<const ParamGroup>(param_groups), where);
        List<StatementsHandle> kept = choices_;
        for (std::size_t number = 0; number < kept.size(); ++number) {
            if (kept[number] != nullptr) { kept[number] = book()->keep(std::move(choices[number])); }
        }
        choices_ = std::move(kept);
        param_groups_ = std::move(param_groups);
        write(chosen.span());
    }
    /// Compares what the ranks called, and begins a step, whose first work is then first(). Collective over the
    /// world.
    /// @return what all ranks must state alike of it
    /// @throws CommError as Rank::compare_calls
    StatementHash begin_step(StatedStep step, LossScaleState* loss_scale, const ClipCoefficient& coefficient,
                             const StepShare& share, SourceLocation where) {
        if (share.before == 0) { rank_->compare_calls(where); }
        step.number = ++steps_;
        step.learning_rate = options_.learning_rate;
        step.max_norm = coefficient.max_norm;
        step.optimizer = hash_of(stated_);
        step.shared = share.before;
        step.updated = where;
        if (stated_ != nullptr) { book()->note(step); }
        first_ = BeginStep{1 / step.divisor, coefficient,  loss_scale,
                           scalars_.data(),  share.adapts, rank_->kept<NormMemory>().take_left(coefficient.total)};
        return step.update_hash();
    }
    /// Returns the first work of the step, for the launch that begins the first groups' updates; none once that has
    /// taken it.
    std::optional<BeginStep>& first() noexcept { return first_; }
    /// Launches it alone, if it is still there.
    void run_first() {
        if (first_) { host::AnyKernels::run_once(rank_->compute_stream(), *first_); }
        first_.reset();
    }
    /// Returns what its ParamGroups choose for group `number`.
    const StatementsHandle& choices(std::size_t number) const noexcept { return choices_[number]; }

    const ChosenOptions* engine_options() const noexcept { return engine_options_.data(); }
    /// Returns a hash of the hyper-parameters in the engine's memory, as far as optimizer_statements names them.
    /// Waits for the compute stream.
    StatementHash read_hash(SourceLocation where) const {
        Fnv fnv;
        for (std::size_t i = 0; i < engine_options_.size(); ++i) {
            const ChosenOptions chosen = engine_options_.read(i);
            fnv.add(std::bit_cast<std::uint64_t>(chosen.learning_rate_scale));
            fnv.add(std::bit_cast<std::uint64_t>(chosen.options.learning_rate));
            for (const Statement& one : optimizer_statements(chosen.options, where)) { fnv.add(one.value); }
        }
        return fnv.hash;
    }
    const StepScalars* scalars() const noexcept { return scalars_.data(); }

  private:
    static std::string in_words(std::size_t group, std::span<const ParamGroup> groups) {
        return group == no_param_group
                   ? std::string("no ParamGroup")
                   : concat("ParamGroup ", group, is_left_out(group, groups) ? ", another optimizer's" : "");
    }
    /// Checks all that parameters may have of these.
    void require_options(const AnyOptions& options, std::span<const ParamGroup> groups, SourceLocation where) const {
        options.rule->validate(options, arithmetic_, where);
        for (const ParamGroup& group : groups) {
            AnyOptions its = options_of(group, options, where);
            its.learning_rate *= group.learning_rate_scale;
            its.rule->validate(its, arithmetic_, where);
        }
    }
    StatementBook* book() const noexcept { return book_of(rank_->world()); }
    void write(std::span<const ChosenOptions> chosen) const {
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            host::AnyKernels::run_once(rank_->compute_stream(), SetOptions{chosen[i], engine_options_.data() + i});
        }
    }

    AnyOptions options_;
    ElementType arithmetic_;
    double given_rate_;
    Rank* rank_;
    std::vector<ParamGroup> param_groups_;
    StatementsHandle stated_;         // of the options
    List<StatementsHandle> choices_;  // of each group
    std::uint64_t steps_ = 0;
    EngineTable<ChosenOptions> engine_options_;  // of chosen_options
    EngineTable<StepScalars> scalars_;
    std::optional<BeginStep> first_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
