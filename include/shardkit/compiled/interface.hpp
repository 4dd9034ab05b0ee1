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
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/until_reduced.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/rank_options.hpp>
#include <shardkit/sharded/group_values.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale_state.hpp>

// What a trainer's file calls in the compiled form: functions of the core, which compiled.hpp defines in one source
// file of the program, or a library. Nothing here depends on a trainer's types: an engine, a precision, a policy and
// a group's parameters come as values.

namespace shardkit {
enum class Gathers : std::uint8_t;
struct ShardInfo;
namespace host {
class Communicator;
}
namespace threads {
struct LaunchOptions;
}
namespace mpi {
struct Options;
}
}  // namespace shardkit

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class Context;       // of one rank
class Groups;        // of a model
class Accumulation;  // of one step
class Reduced;       // gradients of one step
class LossScale;
class Optimizer;
class OpenWindows;  // of summon_full_params

/// The element types of a group, as a value: see Precision.
struct ElementTypes {
    ElementType gather;
    ElementType gradient;
    ElementType reduction;
    ElementType master;

    friend constexpr bool operator==(const ElementTypes&, const ElementTypes&) noexcept = default;
};

/// Gives the elements of one parameter after the other their first values.
class Initializer {
  public:
    virtual void begin(std::string_view path, std::string_view parameter) = 0;
    virtual double at(std::uint64_t index) = 0;

  protected:
    ~Initializer() = default;
};

/// A group's buffers and the state of its step. Its address is stable.
class Group {
  public:
    virtual ~Group() = default;
    Group(Group&&) = delete;

    // Facts, which stay as they are.
    const std::string* path = nullptr;
    const layout::FlatLayout* layout = nullptr;
    std::span<const PlacedParameter> parameters;
    bool trainable = true;
    // What views compare in a checked build.
    const std::uint64_t* window_generation = nullptr;
    const std::uint64_t* gradient_generation = nullptr;

    virtual std::size_t number_of(std::string_view name, SourceLocation where) const = 0;
    virtual std::size_t number_of(std::ptrdiff_t number, SourceLocation where) const = 0;
    virtual void list_shards(std::vector<ShardInfo>& list) = 0;

    virtual void open_window(Gathers gathers, SourceLocation where) = 0;
    virtual void use_window(SourceLocation opened) = 0;
    virtual void close_window() noexcept = 0;
    /// Drops the full copy of a window that was never used.
    virtual void drop_full() noexcept = 0;
    virtual const void* full_parameters() noexcept = 0;
    virtual const float* scales(std::size_t parameter) = 0;

    virtual void initialize(Initializer& values, SourceLocation where) = 0;
    /// `count` elements from `data` on: those that `values` reads.
    virtual void load(std::size_t parameter, const detail::TensorValueSource& values, std::size_t count,
                      std::span<const std::byte> data, SourceLocation where) = 0;
    /// Copies a whole parameter on the ranks with `wanted` into `count` elements of `type` (the gathered one, or
    /// fp64).
    virtual void read_full(std::size_t parameter, bool wanted, ElementType type, void* values, std::size_t count,
                           SourceLocation where) = 0;
    virtual void read_full_gradient(const Reduced& reduced, std::size_t parameter, std::span<double> values,
                                    SourceLocation where) = 0;

    virtual void take_gradients(Accumulation& accumulation, SourceLocation where) = 0;
    virtual void add_gradients(Accumulation& accumulation, SourceLocation where) = 0;
    virtual void drop_gradients() noexcept = 0;
    virtual void* full_gradients() noexcept = 0;
    virtual bool overwrites(std::size_t parameter) noexcept = 0;

  protected:
    Group() = default;
};

[[noreturn]] void refuse_use(SourceLocation where, const char* text);
[[noreturn]] void refuse_group(const Group& group, SourceLocation where, const char* text);

/// Makes a group on a rank. `adopted`: the user's own memory, empty without.
Group* make_group(Context& rank, const ElementTypes& elements, const detail::GroupValues& values,
                  std::span<std::byte> adopted_parameters, std::span<std::byte> adopted_gradients,
                  SourceLocation where);

// A rank.
std::size_t rank_of(const Context& rank) noexcept;
std::size_t world_size_of(const Context& rank) noexcept;
const AxisGrid& grid_of(const Context& rank) noexcept;
const RankOptions& options_of(const Context& rank) noexcept;
const host::Communicator& world_of(const Context& rank) noexcept;
/// Calls take(to, the communicator over these axes).
void sub_mesh(Context& rank, const AxisNames& axes, void (*take)(void* to, const host::Communicator& made), void* to,
              SourceLocation where);
/// Returns the rank's stream: 0 for compute, 1 for communication, 2 for reductions, a host::HostStream.
const void* stream_of(const Context& rank, std::size_t number) noexcept;
void synchronize(const Context& rank);
void settle(const Context& rank) noexcept;
void set_step(Context& rank, std::uint32_t step) noexcept;
void compare_calls(const Context& rank, SourceLocation where);
/// Lets waits take so many milliseconds from now on. @returns what they took before, for end_deadline
std::int64_t begin_deadline(const Context& rank, std::int64_t milliseconds, SourceLocation where);
void end_deadline(const Context& rank, std::int64_t before) noexcept;
void require_memory(const Context& rank, const void* data, std::size_t bytes, std::string_view what,
                    SourceLocation where);
void all_reduce(Context& rank, const host::Communicator& comm, ReduceOp op, ElementType type, void* value,
                SourceLocation where);
double exact_sum(Context& rank, const host::Communicator& comm, std::span<const double> values, SourceLocation where);

// Ranks of a launch.
using Body = void (*)(const void* function, Context& rank);
void run_on_threads(const AxisGrid& grid, Body body, const void* function, RankOptions options,
                    const threads::LaunchOptions* launch_options, SourceLocation where);
void run_on_self(const AxisGrid& grid, Body body, const void* function, RankOptions options, SourceLocation where);
void run_on_mpi(const AxisGrid& grid, Body body, const void* function, RankOptions options,
                const mpi::Options* mpi_options, SourceLocation where);

// A model.
Groups* list_groups(std::span<Group* const> groups);
Groups* copy(const Groups* groups) noexcept;
void end(Groups* groups) noexcept;
std::size_t size_of(const Groups& groups) noexcept;
/// Those that it was made of; null for one that had been moved from.
std::span<Group* const> groups_of(const Groups& groups) noexcept;
/// The same of groups that exist. @throws UsageError when one has ended, or had been moved from
std::span<Group* const> live_groups_of(const Groups& groups, SourceLocation where);
bool same(const Groups& a, const Groups& b) noexcept;
OpenWindows* summon(const Groups& groups, SourceLocation where);
void end(OpenWindows* open) noexcept;

// A step. `count` 0: until reduced.
Accumulation* begin(const Groups& groups, std::size_t count, SourceLocation where);
void end(Accumulation* accumulation) noexcept;
void set_microbatches(Accumulation& accumulation, std::size_t count, SourceLocation where);
void set_microbatches(Accumulation& accumulation, Group& group, std::size_t count, SourceLocation where);
void add_zero(Accumulation& accumulation, Group& group, SourceLocation where);
void skip(Accumulation& accumulation, Group& group, SourceLocation where);

LossScale* make_loss_scale(Context& rank, const LossScaleOptions& options, SourceLocation where);
void end(LossScale* scale) noexcept;
LossScaleState state_of(const LossScale& scale);
const LossScaleState* data_of(const LossScale& scale) noexcept;

Reduced* reduce(Accumulation& accumulation, const Divisor& divisor, LossScale* scale, SourceLocation where);
Reduced* assume_reduced(const Groups& groups, const Divisor& divisor, LossScale* scale, SourceLocation where);
void end(Reduced* reduced) noexcept;
double divisor_of(const Reduced& reduced) noexcept;
bool has_loss_scale(const Reduced& reduced) noexcept;
std::uint64_t identity_of(const Reduced& reduced) noexcept;

/// A norm, whose numbers are in the engine's memory.
struct Norm {
    const void* context = nullptr;
    const void* memory = nullptr;
    const double* total = nullptr;
    std::uint64_t taken = 0;
    std::uint64_t gradients = 0;
};
Norm global_norm(const Reduced& reduced, NormKind kind, SourceLocation where);
double value_of(const Norm& norm, SourceLocation where);
FoundInf found_inf(const Norm& norm, SourceLocation where);
const double* data_of(const Norm& norm, SourceLocation where);
ClipCoefficient clip(const Norm& norm, double max_norm, SourceLocation where);

// Optimizers.
struct StepFacts {
    Divisor divisor;
    double max_norm;
    LossScale* loss_scale;
    NormKind norm;
};
Norm step(Optimizer& optimizer, Accumulation& accumulation, const StepFacts& options, SourceLocation where);
/// A step of reduced gradients, which it ends; null `coefficient`: not clipped.
void step(Optimizer& optimizer, Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where);
void step_in_backward(Optimizer& optimizer, Accumulation& accumulation, const StepFacts& options,
                      SourceLocation where);
double learning_rate_of(const Optimizer& optimizer);
void set_learning_rate(Optimizer& optimizer, double learning_rate, SourceLocation where);
void set_learning_rate_factor(Optimizer& optimizer, double factor, SourceLocation where);
std::uint64_t steps_of(const Optimizer& optimizer, const Group& group, SourceLocation where);
void list_shards(Optimizer& optimizer, std::vector<ShardInfo>& list);
void end(Optimizer* optimizer) noexcept;

/// The rules whose updates the core has.
enum class Rule : std::uint8_t { adamw, amsgrad, sgd, lion };
/// Makes an optimizer of a rule; `options` are the rule's.
template <Rule rule, StateFormat format>
Optimizer* make_optimizer(const Groups& groups, const void* options, std::vector<ParamGroup> param_groups,
                          SourceLocation where);
/// Their options, as the rule has them.
const void* options_of(const Optimizer& optimizer) noexcept;
double given_learning_rate_of(const Optimizer& optimizer) noexcept;
void set_options(Optimizer& optimizer, const void* options, SourceLocation where);
std::span<const ParamGroup> param_groups_of(const Optimizer& optimizer) noexcept;
void set_param_groups(Optimizer& optimizer, const std::vector<ParamGroup>& param_groups, SourceLocation where);

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
    ~Handle() {
        if (object_ != nullptr) { end(object_); }
    }

    T* get() const noexcept { return object_; }
    T& operator*() const noexcept { return *object_; }

  private:
    T* object_ = nullptr;
};

}  // namespace SHARDKIT_CHECKED_BUILD
