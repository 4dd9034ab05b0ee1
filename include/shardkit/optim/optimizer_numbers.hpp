// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/step_work.hpp>
#include <shardkit/rank/engine_table.hpp>
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
    void add_group(std::uint64_t identity, const std::string& path, SourceLocation where);
    /// Once there are all of them: takes the engine's memory.
    void begin(Context<Engine>& context);
    /// That group `number` is the one that it was.
    /// @throws UsageError when it is not: the states are another's
    void check_group(std::size_t number, std::uint64_t identity, const std::string& path, SourceLocation where) const;

    const Options& options() const noexcept { return options_; }
    std::span<const ParamGroup> param_groups() const noexcept { return {param_groups_.data(), param_groups_.size()}; }
    void set_learning_rate(Context<Engine>& context, double learning_rate, SourceLocation where);
    void begin_step(Context<Engine>& context, double divisor_scale, ClipCoefficient coefficient,
                    LossScaleState* loss_scale);

    const Options* engine_options() const noexcept { return engine_options_.data(); }
    const StepScalars* scalars() const noexcept { return scalars_.data(); }

  private:
    Options options_;
    std::vector<ParamGroup> param_groups_;
    std::vector<ModelName> known_;  // the groups, in order
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
void OptimizerNumbers<Rule, Engine>::add_group(std::uint64_t identity, const std::string& path,
                                               SourceLocation where) {
    for (const ModelName& other : known_) {
        if (other.path == path) { throw_invalid_argument(where, "optimizer: two groups have the path '", path, "'"); }
    }
    known_.push_back({identity, path});
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::check_group(std::size_t number, std::uint64_t identity, const std::string& path,
                                                 SourceLocation where) const {
    if (known_[number].identity == identity) { return; }
    throw_usage_error(where, "optimizer step: '", path, "' stands where '", known_[number].path,
                      "' was when the optimizer was made, whose states are kept; make a new optimizer");
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::begin(Context<Engine>& context) {
    // Here, so that the first step allocates nothing but the norm's buffers.
    static_cast<void>(context.template kept<NormMemory<Engine>>());
    engine_options_ = EngineTable<Engine, Options>(context, options_);
    scalars_ = EngineTable<Engine, StepScalars>(context, StepScalars{});
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::set_learning_rate(Context<Engine>& context, double learning_rate,
                                                       SourceLocation where) {
    Options changed = options_;
    changed.learning_rate = learning_rate;
    validate(changed, where);
    options_ = changed;
    Engine::Kernels::run_once(context.compute_stream(), SetOptions<Options>{changed, engine_options_.data()});
}

template <class Rule, class Engine>
void OptimizerNumbers<Rule, Engine>::begin_step(Context<Engine>& context, double divisor_scale,
                                                ClipCoefficient coefficient, LossScaleState* loss_scale) {
    Engine::Kernels::run_once(context.compute_stream(),
                              BeginStep{divisor_scale, coefficient, loss_scale, scalars_.data()});
}

}  // namespace shardkit::detail
