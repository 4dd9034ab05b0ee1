// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/chosen_parameters.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/shard_policy.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/coded_view.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/group_values.hpp>
#include <shardkit/sharded/window.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/sharded/fill_values.hpp>
#endif

namespace shardkit::detail SHARDKIT_BUILD {

#ifdef SHARDKIT_COMPILED
/// Makes a group of the precision that the core has with these values. `parameters`, `gradients`: the user's
/// own memory, or empty.
Group* make_group(Rank& rank, const PrecisionValues& elements, const GroupValues& values,
                  std::span<std::byte> parameters, std::span<std::byte> gradients, SourceLocation where);
template <class Precision>
constexpr const PrecisionValues& elements_for = precision_values<Precision>;
#else
template <class Precision>
constexpr const ElementTable& elements_for = element_table<Precision>;
#endif

/// The state of a Sharded: a group with the types of its parameters and policy. Its address is stable, so that
/// windows and handles survive a move of the Sharded.
template <class GroupType, class PolicyType, class PrecisionType>
class ShardedState : NotCopied {
  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Options = ShardedOptions<Group, Policy>;

    /// @throws what make_group and the check of a TensorList throw
    ShardedState(Rank& rank, std::string_view path, const TensorsOf<Group>& tensors, const Options& options,
                 std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where)
        : rank_(rank), policy_(options.policy) {
        const auto parameters = chosen_parameters<Group, Policy>(path, tensors, options, where);
        group_ =
            make_group(rank, elements_for<Precision>,
                       {path, parameters, Group::extents, Group::all_names,
                        rules::policy_values(options.policy, rank.grid().extent(Dp::name), where), options.packing,
                        options.master, options.stochastic_rounding, options.gradient_release, options.offload},
                       std::as_writable_bytes(adopted_parameters), std::as_writable_bytes(adopted_gradients), where);
    }
    ~ShardedState() { end_group(group_); }

    [[noreturn]] static void refuse_use(SourceLocation where, const char* text) { detail::refuse_use(where, text); }
    [[noreturn]] void refuse_group(SourceLocation where, const char* text) const {
        detail::refuse_group(*group_, where, text);
    }

    Rank& rank() const noexcept { return rank_; }
    const Policy& policy() const noexcept { return policy_; }
    detail::Group& any_group() const noexcept { return *group_; }
    GroupRef ref() const noexcept { return GroupRef(*group_); }
    template <class NameOrNumber>
    std::size_t number_of(const NameOrNumber& parameter, SourceLocation where) const {
        if constexpr (std::integral<NameOrNumber>) {
            return detail::number_of(*group_, static_cast<std::ptrdiff_t>(parameter), where);
        } else {
            return detail::number_of(*group_, std::string_view(parameter), where);
        }
    }

    void open_window(Gathers gathers, SourceLocation where) { detail::open_window(*group_, gathers, where); }
    void use_window(SourceLocation opened) { detail::use_window(*group_, opened); }
    void close_window() noexcept { detail::close_window(*group_); }
    void drop_full() noexcept { detail::drop_full(*group_); }
    /// Returns the view of a parameter in a window: with the scales where codes are gathered.
    auto show(std::size_t parameter, SourceLocation opened) const {
        const WholeElements its = shown_parameter(*group_, parameter);
        const auto shown = view<const Gather>(its, opened);
        if constexpr (Precision::gathers_codes) {
            return CodedView<Gather>(shown, its.scales);
        } else {
            return shown;
        }
    }

    void drop_gradients() noexcept { detail::drop_gradients(*group_); }
    bool overwrites(std::size_t parameter) const noexcept { return detail::overwrites(*group_, parameter); }
    std::size_t sources() const noexcept { return sources_of(*group_); }
    auto gradient(std::size_t parameter, std::size_t source, SourceLocation taken) const {
        return view<Gradient>(gradient_of(*group_, parameter, source), taken);
    }

    /// Sets every element from what `value` gives, which the host calls.
    template <class F>
    void initialize(F& value, SourceLocation where) {
        initialize_values(*group_, value, where);
    }
    /// Sets every element from value(path, parameter name)(index in the whole tensor), with the engine's kernels by
    /// index where this file is compiled for them.
    template <class F>
    void fill(F& value, SourceLocation where) {
#ifdef SHARDKIT_COMPILED
        initialize(value, where);
#else
        fill_values<Precision>(*group_, value, where);
#endif
    }

  private:
    template <class T>
    static TensorView<T> view(const WholeElements& elements, SourceLocation opened) {
        return {static_cast<T*>(elements.at), *elements.shape, *elements.generation, opened};
    }

    Rank& rank_;
    Policy policy_;
    detail::Group* group_ = nullptr;
};

}  // namespace SHARDKIT_BUILD
