// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/step_options.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit SHARDKIT_BUILD {

/// An optimizer over a model, whichever it is: see optim/optimizer.hpp.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    const Model& model() const noexcept { return model_; }
    double learning_rate(SourceLocation where = SourceLocation::current()) const {
        return core(where).learning_rate();
    }
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current()) {
        core(where).set_learning_rate(learning_rate, where);
    }
    void set_learning_rate_factor(double factor, SourceLocation where = SourceLocation::current()) {
        core(where).set_learning_rate_factor(factor, where);
    }
    GlobalNorm step(Accumulation&& accumulation, const StepOptions& options = {},
                    SourceLocation where = SourceLocation::current()) {
        return core(where).step(accumulation, options, where);
    }
    void step_in_backward(Accumulation& accumulation, const StepOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
        core(where).step_in_backward(accumulation, options, where);
    }
    template <class X>
    void step(X&& reduced, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::steps<X>()) { core(where).step(reduced, nullptr, where); }
    }
    template <class X>
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::steps<X>()) { core(where).step(reduced, &coefficient, where); }
    }
    template <class Info = ShardInfo>
    std::vector<Info> shards() {
        std::vector<Info> list;
        core({}).list_shards(list);
        return list;
    }
    template <class Layer>
    std::uint64_t steps(const Layer& layer, SourceLocation where = SourceLocation::current()) const {
        return core(where).steps(detail::Access::make<GroupRef>(detail::group_of(layer, where)), where);
    }

    /// @throws UsageError when it was moved from
    compiled::Optimizer& core(SourceLocation where) const {
        if (optimizer_.get() == nullptr) [[unlikely]] {
            detail::refuse_use(where,
                               "an optimizer was used after it was moved from: use the one that it was moved to");
        }
        return *optimizer_;
    }

  protected:
    Optimizer(const Model& model, compiled::Optimizer* made) : model_(model), optimizer_(made) {}
    Optimizer(Optimizer&&) noexcept = default;
    /// @throws UsageError where another optimizer has this one as its part
    Optimizer& operator=(Optimizer&& other) {
        if (optimizer_.get() != nullptr && optimizer_->combined) {
            detail::refuse_use({},
                               "an optimizer that is part of a combined one was assigned to: the combined one "
                               "would go on with what was there; make both anew");
        }
        model_ = std::move(other.model_);
        optimizer_ = std::move(other.optimizer_);
        return *this;
    }

  private:
    Model model_;
    compiled::Handle<compiled::Optimizer> optimizer_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit::detail SHARDKIT_BUILD {

/// An optimizer of one rule, of the core or a trainer's own.
class AnyRuleOptimizer : public Optimizer {
  public:
    AnyRuleOptimizer(const Model& model, const AnyOptions& options, const std::vector<ParamGroup>& param_groups,
                     SourceLocation where)
        : Optimizer(model, compiled::make_optimizer(model, options, param_groups, where)) {}
    AnyRuleOptimizer(const Model& model, compiled::RuleOptimizer* made) : Optimizer(model, made) {}

    AnyOptions options() const { return rule({}).options(); }
    void set_options(const AnyOptions& options, SourceLocation where) { rule(where).set_options(options, where); }
    double given_learning_rate() const { return rule({}).given_learning_rate(); }
    std::span<const ParamGroup> param_groups() const { return rule({}).param_groups(); }
    void set_param_groups(const std::vector<ParamGroup>& param_groups,
                          SourceLocation where = SourceLocation::current()) {
        rule(where).set_param_groups(param_groups, where);
    }

  private:
    compiled::RuleOptimizer& rule(SourceLocation where) const {
        return static_cast<compiled::RuleOptimizer&>(this->core(where));
    }
};

}  // namespace SHARDKIT_BUILD
