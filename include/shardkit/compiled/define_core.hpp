// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/core_group.hpp>
#include <shardkit/param/check_tensors.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/step/summon_full_params.hpp>

// Defines the functions of interface.hpp, but for optimizers.

namespace shardkit SHARDKIT_FACE {
template double all_reduce_value(Rank&, const Communicator&, double, ReduceOp, SourceLocation);
template float all_reduce_value(Rank&, const Communicator&, float, ReduceOp, SourceLocation);
template bf16 all_reduce_value(Rank&, const Communicator&, bf16, ReduceOp, SourceLocation);
template fp16 all_reduce_value(Rank&, const Communicator&, fp16, ReduceOp, SourceLocation);
template std::int64_t all_reduce_value(Rank&, const Communicator&, std::int64_t, ReduceOp, SourceLocation);
template std::uint64_t all_reduce_value(Rank&, const Communicator&, std::uint64_t, ReduceOp, SourceLocation);
template std::int32_t all_reduce_value(Rank&, const Communicator&, std::int32_t, ReduceOp, SourceLocation);
template std::uint32_t all_reduce_value(Rank&, const Communicator&, std::uint32_t, ReduceOp, SourceLocation);
template std::uint8_t all_reduce_value(Rank&, const Communicator&, std::uint8_t, ReduceOp, SourceLocation);
}  // namespace SHARDKIT_FACE

namespace shardkit::host::detail SHARDKIT_CHECKED_BUILD {
const Reducer& core_reducer(ElementType in, ElementType out) noexcept {
    if (in != out) { return in == ElementType::bf16 ? reducer_of<bf16, float> : reducer_of<fp16, float>; }
    const Reducer* const of[] = {&reducer_of<double, double>,
                                 &reducer_of<float, float>,
                                 &reducer_of<bf16, bf16>,
                                 &reducer_of<fp16, fp16>,
                                 &reducer_of<std::int64_t, std::int64_t>,
                                 &reducer_of<std::int32_t, std::int32_t>,
                                 &reducer_of<std::uint64_t, std::uint64_t>,
                                 &reducer_of<std::uint32_t, std::uint32_t>,
                                 &reducer_of<std::uint8_t, std::uint8_t>};
    return *of[static_cast<std::size_t>(in)];
}
}  // namespace SHARDKIT_CHECKED_BUILD

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

namespace {

/// The elements of a precision, for an error.
std::string name_of(const shardkit::detail::ElementTypes& types) {
    return shardkit::detail::concat(name(types.gather), "/", name(types.gradient), "/", name(types.reduction), "/",
                                    name(types.master));
}
template <class P>
void make_if(Group*& made, std::string& known, Rank& rank, const shardkit::detail::ElementTypes& elements,
             const shardkit::detail::GroupValues& values, const shardkit::detail::AdoptedElements& adopted,
             SourceLocation where) {
    constexpr auto& types = shardkit::detail::element_types<P>;
    known += (known.empty() ? "" : ", ") + name_of(types);
    if (made == nullptr && elements == types) {
        made = new GroupOf(std::type_identity<P>{}, rank, values, adopted, where);
    }
}
template <class... P, class... Arguments>
void make_of(Precisions<P...> /*all*/, Arguments&&... arguments) {
    (make_if<P>(arguments...), ...);
}

}  // namespace

Group* make_group(Rank& rank, const shardkit::detail::ElementTypes& elements,
                  const shardkit::detail::GroupValues& values, std::span<std::byte> adopted_parameters,
                  std::span<std::byte> adopted_gradients, SourceLocation where) {
    Group* made = nullptr;
    std::string known;
    make_of(AllPrecisions{}, made, known, rank, elements, values,
            shardkit::detail::AdoptedElements{{adopted_parameters, elements.gather},
                                              {adopted_gradients, elements.gradient}},
            where);
    if (made == nullptr) {
        throw_invalid_argument(where, "'", values.path, "': elements ", name_of(elements),
                               " (gathered/gradient/reduction/master), expected a precision that the compiled "
                               "core has: ",
                               known, "; define SHARDKIT_COMPILED_PRECISIONS where it is compiled");
    }
    return made;
}
LossScale* make_loss_scale(Rank& rank, const LossScaleOptions& options, SourceLocation where) {
    return new LossScaleOf(shardkit::LossScale(rank, options, where));
}

void refuse_use(SourceLocation where, const char* text) { throw_usage_error(where, text); }
void refuse_group(const Group& group, SourceLocation where, const char* text) {
    throw_usage_error(where, "'", shardkit::detail::path_of(group.of_core), "': ", text);
}

SliceOrder slice_order(const Model& groups, SourceLocation where) { return shardkit::slice_order(groups, where); }
std::size_t slice_of(const Model& groups, std::ptrdiff_t microbatch, SourceLocation where) {
    return shardkit::slice_of(groups, microbatch, where);
}
Object* summon(const Model& groups, SourceLocation where) {
    struct OpenWindows final : Object {
        explicit OpenWindows(FullParams windows) : open(std::move(windows)) {}
        FullParams open;
    };
    return new OpenWindows(summon_full_params(groups, where));
}
Accumulation* begin(const Model& groups, std::size_t count, SourceLocation where) {
    return new AccumulationOf(count == 0 ? shardkit::Accumulation(groups, until_reduced, where)
                                         : shardkit::Accumulation(groups, count, where));
}
Reduced* assume_reduced(const Model& groups, const Divisor& divisor, LossScale* scale, SourceLocation where) {
    auto* const scaled = core_of(scale);
    return new ReducedOf(scaled == nullptr ? shardkit::assume_reduced(groups, divisor, where)
                                           : shardkit::assume_reduced(groups, divisor, *scaled, where));
}

/// Functions that files of the compiled form call, and this one need not.
namespace of = shardkit::detail;
struct Called {
    double (GlobalNorm::*value)(SourceLocation) const = &GlobalNorm::value;
    FoundInf (GlobalNorm::*found_inf)(SourceLocation) const = &GlobalNorm::found_inf;
    const double* (GlobalNorm::*data)(SourceLocation) const = &GlobalNorm::data;
    std::size_t (*number_by_name)(const of::Group&, std::string_view, SourceLocation) = &of::number_of;
    std::size_t (*number)(const of::Group&, std::ptrdiff_t, SourceLocation) = &of::number_of;
    void (*list_shards)(of::Group&, std::vector<ShardInfo>&) = &of::list_shards;
    decltype(&of::path_of) path_of = &of::path_of;
    decltype(&of::parameters_of) parameters_of = &of::parameters_of;
    decltype(&of::trains) trains = &of::trains;
    decltype(&of::layout_of) layout_of = &of::layout_of;
    decltype(&of::begin_initialize) begin_initialize = &of::begin_initialize;
    decltype(&of::write_values) write_values = &of::write_values;
    decltype(&of::load_values) load_values = &of::load_values;
    decltype(&of::new_list) new_list = &of::new_list;
    decltype(&of::add_group) add_group = &of::add_group;
    decltype(&of::add_groups) add_groups = &of::add_groups;
    decltype(&of::hold) hold = &of::hold;
    decltype(&of::release) release = &of::release;
    decltype(&of::size_of) size_of = &of::size_of;
    decltype(&of::group_of) group_of = &of::group_of;
    decltype(&of::require_list) require_list = &of::require_list;
    decltype(&of::same_groups) same_groups = &of::same_groups;
};
[[gnu::used]] static constexpr Called called;

template class AnyOptimizer<Optimizer>;
template class AnyOptimizer<RuleOptimizer>;

}  // namespace SHARDKIT_CHECKED_BUILD
