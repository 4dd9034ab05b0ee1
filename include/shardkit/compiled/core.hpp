// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/communicator.hpp>

// The classes of interface.hpp, made of the classes that a header-only program has: those of a step.

#ifndef SHARDKIT_COMPILED_PRECISIONS
/// The precisions that the core is compiled for: a Precisions<...>, the same in all of its source files.
#define SHARDKIT_COMPILED_PRECISIONS                                                                  \
    ::shardkit::Precisions<::shardkit::DefaultPrecision<double>, ::shardkit::DefaultPrecision<float>, \
                           ::shardkit::DefaultPrecision<::shardkit::bf16>,                            \
                           ::shardkit::DefaultPrecision<::shardkit::fp16>>
#endif

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using AllPrecisions = SHARDKIT_COMPILED_PRECISIONS;

/// An optimizer of the core; `Base` is Optimizer, RuleOptimizer where it is of one rule, or Muon.
template <class Base>
class AnyOptimizer : public Base {
  public:
    virtual shardkit::Optimizer& core() noexcept = 0;

    GlobalNorm step(Accumulation& accumulation, const StepOptions& options, SourceLocation where) override {
        return core().step(std::move(accumulation), options, where);
    }
    void step(Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where) override {
        if (coefficient == nullptr) {
            core().step(std::move(reduced), where);
        } else {
            core().step(std::move(reduced), *coefficient, where);
        }
    }
    void step_in_backward(Accumulation& accumulation, const StepOptions& options, SourceLocation where) override {
        core().step_in_backward(accumulation, options, where);
    }
    double learning_rate() override { return core().learning_rate(); }
    void set_learning_rate(double learning_rate, SourceLocation where) override {
        core().set_learning_rate(learning_rate, where);
    }
    void set_learning_rate_factor(double factor, SourceLocation where) override {
        core().set_learning_rate_factor(factor, where);
    }
    std::uint64_t steps(const GroupRef& group, SourceLocation where) override { return core().steps(group, where); }
    void list_shards(std::vector<ShardInfo>& list) override { list = core().shards(); }
    void* behind() noexcept override { return &core(); }
};
inline shardkit::Optimizer& core_of(Optimizer& optimizer) noexcept {
    return *static_cast<shardkit::Optimizer*>(optimizer.behind());
}

// Which several source files would compile again.
extern template class AnyOptimizer<Optimizer>;
extern template class AnyOptimizer<RuleOptimizer>;

/// An optimizer of the core of one rule: a given one, or its own.
template <class Core>
class OptimizerRef final : public AnyOptimizer<RuleOptimizer> {
    using Options = typename Core::Options;

  public:
    explicit OptimizerRef(Core& core) noexcept : core_(core) { combined = true; }
    explicit OptimizerRef(std::unique_ptr<Core> core) noexcept : owned_(std::move(core)), core_(*owned_) {}
    Core& core() noexcept override { return core_; }
    shardkit::detail::AnyOptions options() const override { return {nullptr, core_.options()}; }
    double given_learning_rate() const noexcept override { return core_.given_learning_rate(); }
    void set_options(const shardkit::detail::AnyOptions& options, SourceLocation where) override {
        core_.set_options(options.as<Options>(), where);
    }
    std::span<const ParamGroup> param_groups() const noexcept override { return core_.param_groups(); }
    void set_param_groups(const std::vector<ParamGroup>& param_groups, SourceLocation where) override {
        core_.set_param_groups(param_groups, where);
    }

  private:
    std::unique_ptr<Core> owned_;
    Core& core_;
};

}  // namespace SHARDKIT_CHECKED_BUILD
