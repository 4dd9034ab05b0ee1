// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/global_norm.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/step_options.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/group_ref.hpp>

// What a trainer's file calls in the compiled form: objects and functions of the core, which compiled.hpp defines in
// one source file of the program, or a library. Nothing here depends on a trainer's types: an engine, a precision, a
// policy and a group's parameters come as values.

namespace shardkit SHARDKIT_CHECKED_BUILD {
class Model;
}
namespace shardkit SHARDKIT_FACE {
class Rank;
class Accumulation;
class Reduced;
class LossScale;
}  // namespace SHARDKIT_FACE

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class Optimizer;

/// An object of the core.
class Object {
  public:
    virtual ~Object() = default;
    Object(Object&&) = delete;

  protected:
    Object() = default;
};

/// Owns an object of the core.
template <class T>
class Handle {
  public:
    Handle() noexcept = default;
    explicit Handle(T* made) noexcept : object_(made) {}
    Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        Handle taken(std::move(other));
        std::swap(object_, taken.object_);
        return *this;
    }
    ~Handle() { delete object_; }

    T* get() const noexcept { return object_; }
    T& operator*() const noexcept { return *object_; }
    T* operator->() const noexcept { return object_; }

  private:
    T* object_ = nullptr;
};

// Optimizers.
class Optimizer : public Object {
  public:
    bool combined = false;  ///< whether another optimizer refers to it, so that nothing can take its place

    virtual GlobalNorm step(Accumulation& accumulation, const StepOptions& options, SourceLocation where) = 0;
    /// A step of reduced gradients, which it ends; null `coefficient`: not clipped.
    virtual void step(Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where) = 0;
    virtual void step_in_backward(Accumulation& accumulation, const StepOptions& options, SourceLocation where) = 0;
    virtual double learning_rate() = 0;
    virtual void set_learning_rate(double learning_rate, SourceLocation where) = 0;
    virtual void set_learning_rate_factor(double factor, SourceLocation where) = 0;
    virtual std::uint64_t steps(const GroupRef& group, SourceLocation where) = 0;
    virtual void list_shards(std::vector<ShardInfo>& list) = 0;
    /// Returns what the core has in its place.
    virtual void* behind() noexcept = 0;
};
/// An optimizer of one rule.
class RuleOptimizer : public Optimizer {
  public:
    virtual shardkit::detail::AnyOptions options() const = 0;
    virtual double given_learning_rate() const noexcept = 0;
    virtual void set_options(const shardkit::detail::AnyOptions& options, SourceLocation where) = 0;
    virtual std::span<const ParamGroup> param_groups() const noexcept = 0;
    virtual void set_param_groups(const std::vector<ParamGroup>& param_groups, SourceLocation where) = 0;
};

/// Returns the core's functions of a rule that it has, with its states in a format.
template <class Rule, StateFormat format>
const shardkit::detail::RuleFunctions& rule_functions();
/// Makes an optimizer of the rule that the options name.
RuleOptimizer* make_optimizer(const Model& groups, const shardkit::detail::AnyOptions& options,
                              std::vector<ParamGroup> param_groups, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
