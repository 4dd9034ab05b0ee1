// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/chosen_parameters.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/shard_policy.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/coded_view.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/window.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The state of a Sharded: a group of the core with the types of its parameters and policy.
template <class GroupType, class PolicyType, class PrecisionType>
class ShardedState {
  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Options = ShardedOptions<Group, Policy>;

    ShardedState(Rank& rank, std::string_view path, const TensorsOf<Group>& tensors, const Options& options,
                 std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where)
        : rank_(rank), policy_(options.policy) {
        const auto parameters = chosen_parameters<Group, Policy>(path, tensors, options, where);
        group_ = compiled::make_group(
            rank, element_types<Precision>,
            {path, parameters, Group::extents, Group::all_names,
             rules::policy_values(options.policy, rank.grid().extent(Dp::name), where), options.packing,
             options.master, options.stochastic_rounding, options.gradient_release, options.offload},
            std::as_writable_bytes(adopted_parameters), std::as_writable_bytes(adopted_gradients), where);
    }
    ShardedState(ShardedState&&) = delete;
    ~ShardedState() { delete group_; }

    [[noreturn]] static void refuse_use(SourceLocation where, const char* text) { compiled::refuse_use(where, text); }
    [[noreturn]] void refuse_group(SourceLocation where, const char* text) const {
        compiled::refuse_group(*group_, where, text);
    }

    compiled::Group& core() const noexcept { return *group_; }
    Rank& rank() const noexcept { return rank_; }
    const Policy& policy() const noexcept { return policy_; }
    detail::Group& any_group() const noexcept { return group_->of_core; }
    GroupRef ref() const noexcept { return Access::make<GroupRef>(any_group()); }
    const std::string& path() const noexcept { return ref().path(); }
    const layout::FlatLayout& layout() const noexcept { return ref().layout(); }
    bool trainable() const noexcept { return ref().trainable(); }
    template <class Info = ShardInfo>
    std::vector<Info> shards() const {
        return ref().template shards<Info>();
    }

    /// The parameters, by name and by number.
    class Geometry {
      public:
        explicit Geometry(const compiled::Group& group) noexcept
            : parameters(parameters_of(group.of_core)), group_(group) {}
        std::span<const PlacedParameter> parameters;
        std::size_t number_of(std::string_view name, SourceLocation where) const {
            return detail::number_of(group_.of_core, name, where);
        }
        template <std::integral Integer>
        std::size_t number_of(Integer number, SourceLocation where) const {
            return detail::number_of(group_.of_core, static_cast<std::ptrdiff_t>(number), where);
        }

        std::size_t sources() const noexcept { return group_.sources; }

      private:
        const compiled::Group& group_;
    };
    Geometry geometry() const noexcept { return Geometry(*group_); }

    void open_window(Gathers gathers, SourceLocation where) { group_->open_window(gathers, where); }
    void use_window(SourceLocation opened) { group_->use_window(opened); }
    void close_window() noexcept { group_->close_window(); }
    struct Parameters {
        compiled::Group& group;
        void drop() const noexcept { group.drop_full(); }
    };
    Parameters parameters() const noexcept { return {*group_}; }
    auto show(std::size_t parameter, SourceLocation opened) const {
        const auto shown = view(parameter, static_cast<const Gather*>(group_->full_parameters()),
                                *group_->window_generation, opened);
        if constexpr (Precision::gathers_codes) {
            return CodedView<Gather>(shown, group_->scales(parameter));
        } else {
            return shown;
        }
    }
    template <class T>
    TensorView<T> view(std::size_t parameter, T* full, const std::uint64_t& generation, SourceLocation opened) const {
        const PlacedParameter& p = parameters_of(group_->of_core)[parameter];
        return {full + p.range.begin, p.part.shape(), generation, opened};
    }

    template <class F>
    void initialize(F& value, SourceLocation where) {
        initialize_values(any_group(), value, where);
    }
    template <class F>
    void fill(F& value, SourceLocation where) {
        initialize(value, where);
    }
    template <class T>
    void load(std::size_t parameter, std::span<T> values, SourceLocation where) {
        const std::span<const std::remove_const_t<T>> read = values;
        load_values(any_group(), parameter, TensorValueSource::of(read), read.size(), std::as_bytes(read), where);
    }
    template <class T>
    void read_full(std::size_t parameter, bool wanted, std::span<T> values, SourceLocation where) {
        if constexpr (std::is_same_v<T, Gather> || std::is_same_v<T, double>) {
            group_->read_full(parameter, wanted, element_type_of<T>, values.data(), values.size(), where);
        } else {
            std::vector<double> exact(wanted ? values.size() : 0);
            group_->read_full(parameter, wanted, ElementType::fp64, exact.data(), exact.size(), where);
            for (std::size_t i = 0; i < exact.size(); ++i) { values[i] = to_element<T>(exact[i]); }
        }
    }

    void drop_gradients() noexcept { group_->drop_gradients(); }
    struct GradientMemory {
        compiled::Group& group;
        bool overwrites(std::size_t parameter) const noexcept { return group.overwrites(parameter); }
        struct Full {
            Gradient* at;
            Gradient* data() const noexcept { return at; }
        };
        Full of_source(std::size_t source) const noexcept {
            return {static_cast<Gradient*>(group.gradients_of(source))};
        }
    };
    GradientMemory gradients() const noexcept { return {*group_}; }
    const std::uint64_t& gradient_generation() const noexcept { return *group_->gradient_generation; }

  private:
    Rank& rank_;
    Policy policy_;
    compiled::Group* group_ = nullptr;
};

}  // namespace SHARDKIT_BUILD
