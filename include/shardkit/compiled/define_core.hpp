// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/grid_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/param/check_tensors.hpp>
#include <shardkit/rank/all_reduce_value.hpp>

// Defines the functions of interface.hpp, but for optimizers and MPI.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
namespace compiled_form {  // in which files of the compiled form have their names
void check_tensors(std::string_view path, std::span<const ParameterRecord> tensors, SourceLocation where) {
    shardkit::detail::check_tensors(path, tensors, where);
}
}  // namespace compiled_form
}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

void refuse_use(SourceLocation where, const char* text) { throw_usage_error(where, text); }
void refuse_group(const Group& group, SourceLocation where, const char* text) {
    throw_usage_error(where, "'", *group.path, "': ", text);
}

namespace {

/// The elements of a precision, for an error.
std::string name_of(const ElementTypes& types) {
    return shardkit::detail::concat(name(types.gather), "/", name(types.gradient), "/", name(types.reduction), "/",
                                    name(types.master));
}
template <class T>
std::span<T> typed(std::span<std::byte> bytes) noexcept {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class P>
void make_if(Group*& made, std::string& known, shardkit::Context<Engine>& context, const ElementTypes& elements,
             const shardkit::detail::GroupValues& values, std::span<std::byte> adopted_parameters,
             std::span<std::byte> adopted_gradients, SourceLocation where) {
    known += (known.empty() ? "" : ", ") + name_of(element_types_of<P>());
    if (made != nullptr || elements != element_types_of<P>()) { return; }
    made = new GroupOf<P>(context, values, typed<typename P::Gather>(adopted_parameters),
                          typed<typename P::Gradient>(adopted_gradients), where);
}
template <class... P, class... Arguments>
void make_of(Precisions<P...> /*all*/, Arguments&&... arguments) {
    (make_if<P>(arguments...), ...);
}

}  // namespace

Group* make_group(Context& rank, const ElementTypes& elements, const shardkit::detail::GroupValues& values,
                  std::span<std::byte> adopted_parameters, std::span<std::byte> adopted_gradients,
                  SourceLocation where) {
    Group* made = nullptr;
    std::string known;
    make_of(AllPrecisions{}, made, known, rank.core, elements, values, adopted_parameters, adopted_gradients, where);
    if (made == nullptr) {
        throw_invalid_argument(where, "'", values.path, "': elements ", name_of(elements),
                               " (gathered/gradient/reduction/master), expected a precision that the compiled core "
                               "has: ",
                               known, "; define SHARDKIT_COMPILED_PRECISIONS where it is compiled");
    }
    return made;
}

std::size_t rank_of(const Context& rank) noexcept { return rank.core.rank(); }
std::size_t world_size_of(const Context& rank) noexcept { return rank.core.world_size(); }
const AxisGrid& grid_of(const Context& rank) noexcept { return rank.core.grid(); }
const RankOptions& options_of(const Context& rank) noexcept { return rank.core.options(); }
const host::Communicator& world_of(const Context& rank) noexcept { return rank.core.world(); }
void sub_mesh(Context& rank, const AxisNames& axes, void (*take)(void* to, const host::Communicator& made), void* to,
              SourceLocation where) {
    take(to, rank.core.communicator(rank.core.grid(), axes, where));
}
const void* stream_of(const Context& rank, std::size_t number) noexcept {
    const auto& streams = rank.core.streams();
    return number == 0 ? &streams.compute : number == 1 ? &streams.communication : &streams.reduction;
}
void synchronize(const Context& rank) { rank.core.synchronize(); }
void settle(const Context& rank) noexcept { rank.core.settle(); }
void set_step(Context& rank, std::uint32_t step) noexcept { rank.core.set_step(step); }
void compare_calls(const Context& rank, SourceLocation where) { rank.core.compare_calls(where); }
std::int64_t begin_deadline(const Context& rank, std::int64_t milliseconds, SourceLocation where) {
    if (milliseconds <= 0) { throw_invalid_argument(where, "deadline: ", milliseconds, " ms, expected at least 1"); }
    return rank.core.world().label().journal.exchange_limit(milliseconds);
}
void end_deadline(const Context& rank, std::int64_t before) noexcept {
    rank.core.world().label().journal.exchange_limit(before);
}
void require_memory(const Context& rank, const void* data, std::size_t bytes, std::string_view what,
                    SourceLocation where) {
    rank.core.require_memory(data, bytes, what, where);
}

namespace {
template <class... T>
void reduce_if(Context& rank, const host::Communicator& comm, ReduceOp op, ElementType type, void* value,
               SourceLocation where) {
    const auto as = [&]<class One>(std::type_identity<One>) {
        if (type == element_type_of<One>) {
            One& number = *static_cast<One*>(value);
            number = shardkit::all_reduce_value(rank.core, comm, number, op, where);
        }
    };
    (as(std::type_identity<T>{}), ...);
}
}  // namespace
void all_reduce(Context& rank, const host::Communicator& comm, ReduceOp op, ElementType type, void* value,
                SourceLocation where) {
    reduce_if<double, float, bf16, fp16, std::int64_t, std::uint64_t, std::int32_t, std::uint32_t, std::uint8_t>(
        rank, comm, op, type, value, where);
}
double exact_sum(Context& rank, const host::Communicator& comm, std::span<const double> values,
                 SourceLocation where) {
    return shardkit::exact_sum(rank.core, comm, values, where);
}

void run_on_threads(const AxisGrid& grid, Body body, const void* function, RankOptions options,
                    const threads::LaunchOptions* launch_options, SourceLocation where) {
    threads::run(
        GridMesh{grid},
        [&](auto& rank) {
            Context core(rank);
            body(function, core);
        },
        options, launch_options == nullptr ? threads::LaunchOptions{} : *launch_options, where);
}
void run_on_self(const AxisGrid& grid, Body body, const void* function, RankOptions options, SourceLocation where) {
    self::run(
        GridMesh{grid},
        [&](auto& rank) {
            Context core(rank);
            body(function, core);
        },
        options, where);
}

Groups* list_groups(std::span<Group* const> groups) {
    using List = ModelOf<AllPrecisions>;
    shardkit::detail::List<List::Member> members;
    for (Group* const group : groups) {
        if (group == nullptr) {
            members.push_back({nullptr, 0, {}, {}});
            continue;
        }
        members.push_back(List::member_of(AnyGroup::of(*group).core()));
    }
    return new Groups{{groups.begin(), groups.end()}, List(std::move(members))};
}
Groups* copy(const Groups* groups) noexcept { return groups == nullptr ? nullptr : new Groups(*groups); }
void end(Groups* groups) noexcept { delete groups; }
std::size_t size_of(const Groups& groups) noexcept { return groups.listed.size(); }
std::span<Group* const> groups_of(const Groups& groups) noexcept { return groups.listed; }
std::span<Group* const> live_groups_of(const Groups& groups, SourceLocation where) {
    // Walking through them looks at each.
    for (const shardkit::detail::Group<Engine>& group : shardkit::detail::Access::each(groups.core, where)) {
        static_cast<void>(group);
    }
    return groups.listed;
}
bool same(const Groups& a, const Groups& b) noexcept { return a.core == b.core; }
OpenWindows* summon(const Groups& groups, SourceLocation where) {
    return new OpenWindows{summon_full_params(groups.core, where)};
}
void end(OpenWindows* open) noexcept { delete open; }

Accumulation* begin(const Groups& groups, std::size_t count, SourceLocation where) {
    return new Accumulation{count == 0 ? shardkit::Accumulation<Engine>(groups.core, until_reduced, where)
                                       : shardkit::Accumulation<Engine>(groups.core, count, where)};
}
void end(Accumulation* accumulation) noexcept { delete accumulation; }
void set_microbatches(Accumulation& accumulation, std::size_t count, SourceLocation where) {
    accumulation.core.set_microbatches(count, where);
}
void set_microbatches(Accumulation& accumulation, Group& group, std::size_t count, SourceLocation where) {
    auto layer = AnyGroup::of(group).ref();
    accumulation.core.set_microbatches(layer, count, where);
}
void add_zero(Accumulation& accumulation, Group& group, SourceLocation where) {
    auto layer = AnyGroup::of(group).ref();
    accumulation.core.add_zero(layer, where);
}
void skip(Accumulation& accumulation, Group& group, SourceLocation where) {
    auto layer = AnyGroup::of(group).ref();
    accumulation.core.skip(layer, where);
}

LossScale* make_loss_scale(Context& rank, const LossScaleOptions& options, SourceLocation where) {
    return new LossScale{shardkit::LossScale<Engine>(rank.core, options, where)};
}
void end(LossScale* scale) noexcept { delete scale; }
LossScaleState state_of(const LossScale& scale) { return shardkit::detail::Access::now(scale.core); }
const LossScaleState* data_of(const LossScale& scale) noexcept { return scale.core.data(); }

Reduced* reduce(Accumulation& accumulation, const Divisor& divisor, LossScale* scale, SourceLocation where) {
    auto& given = accumulation.core;
    return new Reduced{scale == nullptr ? shardkit::reduce(std::move(given), divisor, where)
                                        : shardkit::reduce(std::move(given), divisor, scale->core, where)};
}
Reduced* assume_reduced(const Groups& groups, const Divisor& divisor, LossScale* scale, SourceLocation where) {
    return new Reduced{scale == nullptr ? shardkit::assume_reduced(groups.core, divisor, where)
                                        : shardkit::assume_reduced(groups.core, divisor, scale->core, where)};
}
void end(Reduced* reduced) noexcept { delete reduced; }
double divisor_of(const Reduced& reduced) noexcept { return reduced.core.divisor(); }
bool has_loss_scale(const Reduced& reduced) noexcept { return reduced.core.has_loss_scale(); }
std::uint64_t identity_of(const Reduced& reduced) noexcept { return reduced.core.identity(); }

namespace {
using CoreNorm = shardkit::GlobalNorm<Engine>;
static_assert(sizeof(CoreNorm) == sizeof(Norm) && std::is_trivially_copyable_v<CoreNorm>);
Norm to_value(const CoreNorm& norm) noexcept {
    Norm value;
    std::memcpy(static_cast<void*>(&value), static_cast<const void*>(&norm), sizeof(value));
    return value;
}
CoreNorm from_value(const Norm& value) noexcept {
    alignas(CoreNorm) std::byte memory[sizeof(CoreNorm)];
    std::memcpy(memory, &value, sizeof(value));
    return *std::launder(reinterpret_cast<const CoreNorm*>(memory));
}
}  // namespace
Norm global_norm(const Reduced& reduced, NormKind kind, SourceLocation where) {
    return to_value(shardkit::global_norm(reduced.core, kind, where));
}
double value_of(const Norm& norm, SourceLocation where) { return from_value(norm).value(where); }
FoundInf found_inf(const Norm& norm, SourceLocation where) { return from_value(norm).found_inf(where); }
const double* data_of(const Norm& norm, SourceLocation where) { return from_value(norm).data(where); }
ClipCoefficient clip(const Norm& norm, double max_norm, SourceLocation where) {
    return shardkit::clip(from_value(norm), max_norm, where);
}

namespace {
shardkit::StepOptions<Engine> options_of(const StepFacts& facts) noexcept {
    return {facts.divisor, facts.max_norm, facts.loss_scale == nullptr ? nullptr : &facts.loss_scale->core,
            facts.norm};
}
}  // namespace
Norm step(Optimizer& optimizer, Accumulation& accumulation, const StepFacts& options, SourceLocation where) {
    return to_value(optimizer.core().step(std::move(accumulation.core), options_of(options), where));
}
void step(Optimizer& optimizer, Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where) {
    if (coefficient == nullptr) {
        optimizer.core().step(std::move(reduced.core), where);
    } else {
        optimizer.core().step(std::move(reduced.core), *coefficient, where);
    }
}
void step_in_backward(Optimizer& optimizer, Accumulation& accumulation, const StepFacts& options,
                      SourceLocation where) {
    optimizer.core().step_in_backward(accumulation.core, options_of(options), where);
}
double learning_rate_of(const Optimizer& optimizer) {
    return const_cast<Optimizer&>(optimizer).core().learning_rate();
}
void set_learning_rate(Optimizer& optimizer, double learning_rate, SourceLocation where) {
    optimizer.core().set_learning_rate(learning_rate, where);
}
void set_learning_rate_factor(Optimizer& optimizer, double factor, SourceLocation where) {
    optimizer.core().set_learning_rate_factor(factor, where);
}
std::uint64_t steps_of(const Optimizer& optimizer, const Group& group, SourceLocation where) {
    const auto layer = const_cast<AnyGroup&>(AnyGroup::of(group)).ref();
    return const_cast<Optimizer&>(optimizer).core().steps(layer, where);
}
void list_shards(Optimizer& optimizer, std::vector<ShardInfo>& list) { list = optimizer.core().shards(); }
void end(Optimizer* optimizer) noexcept { delete optimizer; }
const void* options_of(const Optimizer& optimizer) noexcept { return optimizer.options(); }
double given_learning_rate_of(const Optimizer& optimizer) noexcept { return optimizer.given_learning_rate(); }
void set_options(Optimizer& optimizer, const void* options, SourceLocation where) {
    optimizer.set_options(options, where);
}
std::span<const ParamGroup> param_groups_of(const Optimizer& optimizer) noexcept { return optimizer.param_groups(); }
void set_param_groups(Optimizer& optimizer, const std::vector<ParamGroup>& param_groups, SourceLocation where) {
    optimizer.set_param_groups(param_groups, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
