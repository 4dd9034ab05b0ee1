// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/statement_book.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer_statements.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/step_work.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/step/loss_scale.hpp>

namespace shardkit::detail {

/// What an Optimizer has besides its groups' states: its numbers, here and in the engine's memory.
template <class Rule, class Engine>
class OptimizerNumbers {
  public:
    using Options = typename Rule::Options;

    /// @throws std::invalid_argument for hyper-parameters out of range
    OptimizerNumbers(const Options& options, std::vector<ParamGroup> param_groups, SourceLocation where);
    OptimizerNumbers(OptimizerNumbers&&) noexcept;
    OptimizerNumbers& operator=(OptimizerNumbers&&) noexcept;
    ~OptimizerNumbers();

    /// One more group. @throws std::invalid_argument when another has its path
    void add_group(Context<Engine>& context, const GroupGeometry& group, SourceLocation where);
    /// Once there are all of them: takes the engine's memory.
    void begin(Context<Engine>& context);
    const Options& options() const noexcept { return options_; }
    std::span<const ParamGroup> param_groups() const noexcept { return {param_groups_.data(), param_groups_.size()}; }
    Context<Engine>& context() const noexcept { return *context_; }
    void set_learning_rate(double learning_rate, SourceLocation where);
    /// Compares what the ranks called, and begins a step. Collective over the world.
    /// @return what all ranks must state alike of it
    /// @throws CommError as Context::compare_calls
    StatementHash begin_step(double divisor_scale, const ClipCoefficient& coefficient, LossScaleState* loss_scale,
                             StatementHash gradients, SourceLocation where);
    /// What its ParamGroups choose for group `number`.
    StatementHash choices(std::size_t number) const noexcept;

    const Options* engine_options() const noexcept { return engine_options_.data(); }
    const StepScalars* scalars() const noexcept { return scalars_.data(); }

  private:
    Options options_;
    Context<Engine>* context_ = nullptr;
    std::vector<ParamGroup> param_groups_;
    std::set<std::string> paths_;            // of the groups
    StatementsHandle stated_;                // of the options
    std::vector<StatementsHandle> choices_;  // of each group
    std::uint64_t steps_ = 0;
    EngineTable<Engine, Options> engine_options_;
    EngineTable<Engine, StepScalars> scalars_;
};

template <class Rule, class Engine>
OptimizerNumbers<Rule, Engine>::OptimizerNumbers(const Options& options, std::vector<ParamGroup> param_groups,
                                                 SourceLocation where)
    : options_(options), param_groups_(std::move(param_groups)) {
    validate(options, where);
    for (const ParamGroup& group : param_groups_) {
        validate(group, where);
        static_cast<void>(options_of(group, options_, where));
    }
}

template <class Rule, class Engine>
OptimizerNumbers<Rule, Engine>::OptimizerNumbers(OptimizerNumbers&&) noexcept = default;
template <class Rule, class Engine>
OptimizerNumbers<Rule, Engine>& OptimizerNumbers<Rule, Engine>::operator=(OptimizerNumbers&&) noexcept = default;
template <class Rule, class Engine>
OptimizerNumbers<Rule, Engine>::~OptimizerNumbers() = default;

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::add_group(Context<Engine>& context, const GroupGeometry& group,
                                               SourceLocation where) {
    if (!paths_.insert(group.path).second) {
        throw_invalid_argument(where, "optimizer: two groups have the path '", group.path, "'");
    }
    choices_.emplace_back();
    StatementBook* const book = context.world_size() > 1 ? book_of(context.world()) : nullptr;
    if (book == nullptr) { return; }
    if (stated_ == nullptr) { stated_ = book->keep(optimizer_statements<Rule>(options_, where)); }
    if (!param_groups_.empty()) {
        choices_.back() =
            book->keep(param_group_statements<Rule>(group.path, group.parameters, param_groups(), where));
    }
}

template <class Rule, class Engine>
StatementHash OptimizerNumbers<Rule, Engine>::choices(std::size_t number) const noexcept {
    return hash_of(choices_[number]);
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::begin(Context<Engine>& context) {
    context_ = &context;
    // Here, so that the first step allocates nothing but the norm's buffers.
    static_cast<void>(context.template kept<NormMemory<Engine>>());
    engine_options_ = EngineTable<Engine, Options>(context, options_);
    scalars_ = EngineTable<Engine, StepScalars>(context, StepScalars{});
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::set_learning_rate(double learning_rate, SourceLocation where) {
    Options changed = options_;
    changed.learning_rate = learning_rate;
    validate(changed, where);
    options_ = changed;
    Engine::Kernels::run_once(context_->compute_stream(), SetOptions<Options>{changed, engine_options_.data()});
}

template <class Rule, class Engine>
StatementHash OptimizerNumbers<Rule, Engine>::begin_step(double divisor_scale, const ClipCoefficient& coefficient,
                                                         LossScaleState* loss_scale, StatementHash gradients,
                                                         SourceLocation where) {
    context_->compare_calls(where);
    const StatedStep step{++steps_, options_.learning_rate, coefficient.max_norm, hash_of(stated_), gradients, where};
    const StatementHash hash = step.hash();
    if (stated_ != nullptr) { book_of(context_->world())->note(hash, step); }
    Engine::Kernels::run_once(context_->compute_stream(),
                              BeginStep{divisor_scale, coefficient, loss_scale, scalars_.data()});
    return hash;
}

}  // namespace shardkit::detail
