// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/dynamic.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/global_norm.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/policy/slice_order.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/rank_options.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/group_values.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale_state.hpp>

// What a trainer's file calls in the compiled form: objects and functions of the core, which compiled.hpp defines in
// one source file of the program, or a library. Nothing here depends on a trainer's types: an engine, a precision, a
// policy and a group's parameters come as values.

namespace shardkit SHARDKIT_CHECKED_BUILD {
class Model;
}
namespace shardkit {
class Communicator;
enum class Gathers : std::uint8_t;
}  // namespace shardkit
namespace shardkit SHARDKIT_FACE {
class Rank;
}

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class Accumulation;  // of one step
class Reduced;       // gradients of one step
class LossScale;
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

/// Takes elements of a group, whose type is a value.
using ShownTo = void (*)(void* to, ElementType type, void* values);
/// Sums of gradients that this rank has of a group.
struct Sums {
    void* data;
    IndexRange flat;  ///< of the group's flat order
    double scale;     ///< turns a sum into a gradient
};

/// A group's buffers and the state of its step. Its address is stable.
class Group : public Object {
  public:
    // Facts, which stay as they are.
    shardkit::detail::Group& of_core;
    IndexRange updated;
    std::size_t sources = 1;
    // What views compare in a checked build.
    const std::uint64_t* window_generation = nullptr;
    const std::uint64_t* gradient_generation = nullptr;

    virtual void open_window(Gathers gathers, SourceLocation where) = 0;
    virtual void use_window(SourceLocation opened) = 0;
    virtual void close_window() noexcept = 0;
    /// Drops the full copy of a window that was never used.
    virtual void drop_full() noexcept = 0;
    virtual const void* full_parameters() noexcept = 0;
    virtual const float* scales(std::size_t parameter) = 0;

    /// Copies a whole parameter on the ranks with `wanted` into `count` elements of `type` (the gathered one, or
    /// fp64).
    virtual void read_full(std::size_t parameter, bool wanted, ElementType type, void* values, std::size_t count,
                           SourceLocation where) = 0;
    virtual void read_full_gradient(const Reduced& reduced, std::size_t parameter, std::span<double> values,
                                    SourceLocation where) = 0;

    virtual void take_gradients(Accumulation& accumulation, SourceLocation where) = 0;
    virtual void add_gradients(Accumulation& accumulation, SourceLocation where) = 0;
    virtual void drop_gradients() noexcept = 0;
    virtual void* gradients_of(std::size_t source) noexcept = 0;
    virtual bool overwrites(std::size_t parameter) noexcept = 0;

    /// Shows the elements that this rank updates, `updated` of the flat order, to be read or written.
    virtual void show_updated(bool to_write, ShownTo show, void* to, SourceLocation where) = 0;
    /// The sums of a step's gradients, or with null those that the program's own kernels have made.
    virtual Sums sums(const Reduced* reduced, SourceLocation where) = 0;

  protected:
    explicit Group(shardkit::detail::Group& group) noexcept : of_core(group) {}
};

[[noreturn]] void refuse_use(SourceLocation where, const char* text);
[[noreturn]] void refuse_group(const Group& group, SourceLocation where, const char* text);

/// Makes a group. `adopted`: the user's own memory, empty without.
Group* make_group(Rank& rank, const shardkit::detail::ElementTypes& elements, const detail::GroupValues& values,
                  std::span<std::byte> adopted_parameters, std::span<std::byte> adopted_gradients,
                  SourceLocation where);
LossScale* make_loss_scale(Rank& rank, const LossScaleOptions& options, SourceLocation where);

// A model.
SliceOrder slice_order(const Model& groups, SourceLocation where);
std::size_t slice_of(const Model& groups, std::ptrdiff_t microbatch, SourceLocation where);
Object* summon(const Model& groups, SourceLocation where);
/// `count` 0: until reduced.
Accumulation* begin(const Model& groups, std::size_t count, SourceLocation where);
Reduced* assume_reduced(const Model& groups, const Divisor& divisor, LossScale* scale, SourceLocation where);

// A step.
class Accumulation : public Object {
  public:
    virtual void set_microbatches(std::size_t count, SourceLocation where) = 0;
    virtual void set_microbatches(const GroupRef& group, std::size_t count, SourceLocation where) = 0;
    virtual void add_zero(const GroupRef& group, SourceLocation where) = 0;
    virtual void skip(const GroupRef& group, SourceLocation where) = 0;
    virtual Reduced* reduce(const Divisor& divisor, LossScale* scale, SourceLocation where) = 0;
};

class LossScale : public Object {
  public:
    virtual LossScaleState state() const = 0;
    virtual const LossScaleState* data() const noexcept = 0;
};

class Reduced : public Object {
  public:
    virtual double divisor() const noexcept = 0;
    virtual bool has_loss_scale() const noexcept = 0;
    virtual std::uint64_t identity() const noexcept = 0;
    virtual GlobalNorm global_norm(NormKind kind, SourceLocation where) const = 0;
};

// Optimizers.
struct StepFacts {
    Divisor divisor;
    double max_norm;
    LossScale* loss_scale;
    NormKind norm;
};
class Optimizer : public Object {
  public:
    bool combined = false;  ///< whether another optimizer refers to it, so that nothing can take its place

    virtual GlobalNorm step(Accumulation& accumulation, const StepFacts& options, SourceLocation where) = 0;
    /// A step of reduced gradients, which it ends; null `coefficient`: not clipped.
    virtual void step(Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where) = 0;
    virtual void step_in_backward(Accumulation& accumulation, const StepFacts& options, SourceLocation where) = 0;
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
