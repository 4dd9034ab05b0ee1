// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/detail/access.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/sharded/coded_view.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/sharded/whole_tensor.hpp>
#include <shardkit/sharded/window.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Sets neighbouring elements of a parameter's part, for Kernels::for_each_index.
template <class T, class Rounding, class F>
struct FillWork {
    F value;
    TensorPart part;
    std::size_t first;
    T* to;

    constexpr T operator[](std::uint64_t i) const {
        return Rounding::template of<T>(static_cast<double>(value(std::uint64_t{part.whole_index(first + i)})));
    }
    constexpr void operator()(std::uint64_t i) const { to[i] = (*this)[i]; }
};
/// Does with a kernel what write_rounded does.
template <class Rounding, class T, class F>
void fill_rounded(const Rank& rank, const PlacedParameter& filled, std::span<T> target, std::size_t origin,
                  const F& value, ValuesDigest* digest) {
    const IndexRange range = intersect(filled.range, {origin, origin + target.size()});
    if (range.empty()) { return; }
    const std::size_t first = range.begin - filled.range.begin;
    const FillWork<T, Rounding, F> work{value, filled.part, first, target.data() + (range.begin - origin)};
    host::AnyKernels::for_each_index(rank.compute_stream(), range.size(), work);
    if constexpr (FloatingElement<T>) {
        if (digest == nullptr) { return; }
        digest->template add_each<T>(first, range.size(), [&](std::size_t i) { return work[i]; });
    }
}

/// A group with its element types: gives views of its buffers, and takes functions of elements. All else is Group's.
template <class PrecisionType>
class GroupState : public Group {
    using Base = Group;

  public:
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    using Base::path;

    /// Collective over the mesh: creates sub-communicators, and the ranks compare their groups.
    /// @throws as place_group; MemoryError
    GroupState(Rank& rank, const GroupValues& values, const AdoptedElements& adopted, SourceLocation where)
        : Base(rank, place_group(rank, element_table<Precision>, values, where), element_table<Precision>, adopted,
               where) {}

    /// Returns the view of a parameter in a full buffer that starts at `full`.
    template <class T>
    TensorView<T> view(std::size_t parameter, T* full, const std::uint64_t& generation, SourceLocation opened) const {
        const PlacedParameter& p = geometry_.parameters[parameter];
        return {full + p.range.begin, p.part.shape(), generation, opened};
    }

    /// Returns the view of a parameter in a window: with the scales where codes are gathered.
    auto show(std::size_t parameter, SourceLocation opened) const {
        const std::span<const Gather> full = parameters_.full();
        const auto shown = view(parameter, full.data(), parameters_.generation(), opened);
        if constexpr (Precision::gathers_codes) {
            return CodedView<Gather>(shown, parameters_.scales(parameter));
        } else {
            return shown;
        }
    }

    /// Sets one parameter from its full values.
    /// @throws std::invalid_argument when their number is not the parameter's; UsageError when a window is open
    template <class T>
    void load(std::size_t parameter, std::span<T> values, SourceLocation where) {
        const std::span<const std::remove_const_t<T>> read = values;
        load_values(*this, parameter, TensorValueSource::of(read), read.size(), std::as_bytes(read), where);
    }
    /// Sets every element from what `value` gives, which the host calls.
    template <class F>
    void initialize(F& value, SourceLocation where) {
        initialize_values(*this, value, where);
    }

    /// Sets every element from value(path, parameter name)(index in the whole tensor), with the engine's kernels by
    /// index.
    template <GivesFunctions F>
    void fill(F& value, SourceLocation where) {
        this->begin_initialize(where);
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
            const auto its = function_of(value, geometry_.path, geometry_.parameters[p].name);
            static_assert(
                std::is_trivially_copyable_v<decltype(its)>,
                "initialize: the function of an index is copied to the engine: expected a trivially copyable one");
            ValuesDigest digest(geometry_.parameters[p].range.size());
            this->for_each_written(
                statements_.compares_values() ? &digest : nullptr,
                [&](WrittenAs how, const StoredElements& target, std::size_t origin, ValuesDigest* to) {
                    in_form<Precision>(how, target, [&](auto elements, auto rounding) {
                        fill_rounded<decltype(rounding)>(rank_, geometry_.parameters[p], elements, origin, its, to);
                    });
                });
            this->settle_frozen(p);
            parameters_.end_write();
            torn_.end(p, TornValues::parameters);
            if (statements_.compares_values()) { statements_.set_values(p, digest); }
        }
    }

    /// Calls f(values) with the elements that this rank updates, `geometry.updated` of the flat order: the master
    /// weights where the group has them, joined for the call where they are split.
    template <class F>
    void show_updated(const F& f, bool to_write = false) {
        if constexpr (Precision::has_master) {
            if (geometry_.keeps_master()) { return f(std::span<Master>(parameters_.master())); }
        }
        if constexpr (can_split_master<Precision>) {
            if (geometry_.splits_master()) {
                const auto joined = this->join_masters();
                await_host_memory(rank_);
                f(std::span<Master>(joined.span()));
                if (to_write) { return this->split_masters(joined.span()); }
                rank_.compute_stream().settle();
                return;
            }
        }
        if constexpr (!Precision::gathers_codes) { f(std::span<Gather>(parameters_.gather_source())); }
    }
    /// Does the same for an f that writes, and takes over what it has written.
    template <class F>
    void write_updated(const F& f) {
        show_updated(f, true);
        if constexpr (Precision::has_master && !Precision::gathers_codes) {
            if (!geometry_.keeps_master()) { return; }
            host::AnyKernels::convert(rank_.compute_stream(), std::span<const Master>(parameters_.master()),
                                      std::span<Gather>(parameters_.gather_source()));
        }
    }

    /// Copies one whole tensor into `values` on the ranks with `wanted`. Collective as unshard, and over tp where the
    /// tensor is split over it.
    /// @throws std::invalid_argument when their number is not the tensor's
    template <FloatingElement T>
    void read_full(std::size_t parameter, bool wanted, std::span<T> values, SourceLocation where) {
        if (wanted) { check_values("read_full", parameter, std::span<const T>(values), where); }
        this->open_window(Gathers::when_stale, where);
        const auto window = Access::make<PendingWindow<GroupState>>(*this, where).wait();
        const auto stream = rank_.compute_stream();
        const IndexRange range = geometry_.parameters[parameter].range;
        const std::span<const Gather> elements = parameters_.full().subspan(range.begin, range.size());
        if constexpr (Precision::gathers_codes) {
            auto decoded = group_buffer<float>(rank_, path(), "decoded parameters", range.size());
            run_each(stream, range.size(),
                     DecodeElement<Gather>{elements.data(), parameters_.scales(parameter), decoded.data()});
            const WholeTensor<float> whole(rank_, comms_, geometry_, parameter,
                                           std::span<const float>(decoded.span()), stream, where);
            if (wanted) { whole.copy(values); }
            stream.settle();
        } else {
            const WholeTensor<Gather> whole(rank_, comms_, geometry_, parameter, elements, stream, where);
            if (wanted) { whole.copy(values); }
        }
    }
    /// Copies one whole reduced gradient, times `scale`, into `values`. Collective over the shard group, and over tp
    /// where the tensor is split over it.
    /// @throws std::invalid_argument when their number is not the tensor's; UsageError without a gradient
    template <FloatingElement T>
    void read_full_gradient(std::size_t parameter, double scale, std::span<T> values, SourceLocation where) {
        this->require_gradients("read_full", where);
        check_values("read_full", parameter, std::span<const T>(values), where);
        const auto stream = rank_.reduction_stream();
        HostBuffer<Reduction> gathered;
        const std::string what = concat("'", path(), "' reduced gradients");
        const std::span<const Reduction> full = whole_group<Reduction>(
            rank_, comms_, geometry_, gradients_.reduced(), gathered, "gathered gradients", stream,
            {where, subject_of(comms_.shards, what), statements_.in_call(Over::shards)});
        const IndexRange range = geometry_.parameters[parameter].range;
        const WholeTensor<Reduction> whole(rank_, comms_, geometry_, parameter,
                                           full.subspan(range.begin, range.size()), stream, where);
        whole.convert(values, [scale](Reduction sum) {
            return static_cast<Arithmetic<T>>(static_cast<double>(static_cast<Arithmetic<Reduction>>(sum)) * scale);
        });
    }

  private:
    /// Checks that the user's values have the parameter's size and lie in host memory.
    template <class T>
    void check_values(std::string_view verb, std::size_t parameter, std::span<const T> values,
                      SourceLocation where) const {
        this->check_whole(verb, parameter, values.size(), std::as_bytes(values), where);
    }

    using Base::comms_;
    using Base::elements_;
    using Base::geometry_;
    using Base::gradients_;
    using Base::parameters_;
    using Base::rank_;
    using Base::statements_;
    using Base::torn_;
};

/// The state of a Sharded: a GroupState with the types of its group and policy. Its address is stable, so that
/// windows and handles survive a move of the Sharded.
template <class GroupType, class PolicyType, class PrecisionType>
class ShardedState final : public GroupState<PrecisionType> {
    using Base = GroupState<PrecisionType>;

  public:
    using Group = GroupType;
    using Policy = PolicyType;
    using typename Base::Gather;
    using typename Base::Gradient;
    using typename Base::Precision;
    using Options = ShardedOptions<Group, Policy>;

    /// @throws what GroupState's constructor and the check of a TensorList throw
    ShardedState(Rank& rank, std::string_view path, const TensorsOf<Group>& tensors, const Options& options,
                 std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where)
        : Base(rank,
               {path, chosen_parameters<Group, Policy>(path, tensors, options, where), Group::extents,
                Group::all_names, rules::policy_values(options.policy, dp_extent(rank), where), options.packing,
                options.master, options.stochastic_rounding, options.gradient_release, options.offload},
               {adopted_parameters, adopted_gradients}, where),
          policy_(options.policy) {}

    const Policy& policy() const noexcept { return policy_; }

  private:
    Policy policy_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
