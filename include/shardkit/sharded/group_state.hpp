// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/detail/access.hpp>
#include <shardkit/detail/end_program.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/coded_view.hpp>
#include <shardkit/sharded/gather_whole.hpp>
#include <shardkit/sharded/gradient_store.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/sharded/parameter_store.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/sharded/whole_tensor.hpp>
#include <shardkit/sharded/window.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// A group with its buffers: implements the members of Group that need the element types. It is compiled once for all
/// groups and policies of an engine and a precision.
template <class EngineType, class PrecisionType>
class GroupState : public Group<EngineType> {
    using Base = Group<EngineType>;

  public:
    using Engine = EngineType;
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    using Base::geometry;
    using Base::path;
    using Base::step;
    using Base::trainable;

    /// Collective over the mesh: creates sub-communicators, and the ranks compare their groups.
    /// @throws as place_group; MemoryError
    GroupState(Context<Engine>& context, const GroupValues& values, std::span<Gather> adopted_parameters,
               std::span<Gradient> adopted_gradients, SourceLocation where);
    /// Waits for the streams' work on this group's memory. A destructor cannot report an error of that work: the next
    /// wait does, if the stream keeps the error. Ends the program when a window, a handle or a step still refers to
    /// the group.
    ~GroupState();

    ParameterStore<Engine, Precision>& parameters() noexcept { return parameters_; }
    GradientStore<Engine, Precision>& gradients() noexcept { return gradients_; }

    /// Returns the view of a parameter in a full buffer that starts at `full`.
    template <class T>
    TensorView<T> view(std::size_t parameter, T* full, const std::uint64_t& generation, SourceLocation opened) const {
        const PlacedParameter& p = geometry_.parameters[parameter];
        return {full + p.range.begin, p.part.shape(), generation, opened};
    }

    /// Returns the view of a parameter in a window: with the scales where codes are gathered.
    auto show(std::size_t parameter, SourceLocation opened) const {
        const auto shown = view(parameter, parameters_.full().data(), parameters_.generation(), opened);
        if constexpr (Precision::gathers_codes) {
            return CodedView<Gather>(shown, parameters_.scales(parameter));
        } else {
            return shown;
        }
    }

    /// Opens a window. Its gather runs until `use_window`.
    void open_window(Gathers gathers, SourceLocation where);
    bool has_room_for_gradients() const noexcept override { return gradients_.has_room(); }
    void take_gradients(SourceLocation where, std::string_view verb, Writes writes) override;
    /// Takes back a gradient buffer whose handle was destroyed; its gradients are not added.
    void drop_gradients() noexcept;
    void add_gradients(SourceLocation where, std::string_view verb) override;
    void skip_step(SourceLocation where) override;
    void write(std::size_t parameter, const TensorValueSource& values, SourceLocation where) override;
    std::vector<ShardInfo> shards() override;
    List<HeldBuffer> held() override;
    void begin_update(SourceLocation where) const override;
    void begin_write(SourceLocation where) override {
        step_.require_not_updated(path(), "load", where);
        begin_update(where);
        parameters_.wait();
    }
    void end_load() override {
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) { settle_frozen(p); }
        parameters_.end_load();
        statements_.forget_values();
    }
    std::size_t open_windows() const noexcept override { return parameters_.windows(); }
    void summon_window(SourceLocation where) override;
    void use_window(SourceLocation opened) override;
    void close_window() noexcept override;
    void drop_window() noexcept override {
        parameters_.drop();
        close_window();
    }
    void finish_gradients(SourceLocation where, std::string_view verb) override;
    void release_gradients() noexcept override { gradients_.release(); }
    void await_reduced() override { gradients_.wait(); }
    void digest_reduced(StatedStep& stated) override;
    void add_norms(const double* scale, std::span<PartialNorms> norms, PartialNorms* lanes) override;
    NormList<Engine>& list_for_norm(std::uint64_t norm) override;
    void hold_parameters(void* memory, SourceLocation where) override { parameters_.hold(memory, where); }
    void let_go_parameters() noexcept override { parameters_.let_go(); }
    void place_gradients(void* memory) noexcept override { gradients_.place(memory); }
    void place_addend(void* memory) noexcept override { gradients_.place_addend(memory); }
    void reduce_added(SourceLocation where) override { gradients_.reduce_added(where); }
    void finish_reductions(SourceLocation where) override { gradients_.finish(where); }
    bool uses_scheduled_memory() const noexcept override {
        return parameters_.shows_held() || (step_.busy() && gradients_.placed());
    }

    /// Sets every element from value(path, parameter name)(index in the whole tensor), with the engine's kernels by
    /// index.
    template <GivesFunctions F>
    void fill(F& value, SourceLocation where);

    /// Calls f(values) with the elements that this rank updates, `geometry.updated` of the flat order: the master
    /// weights where the group has them, joined for the call where they are split.
    template <class F>
    void show_updated(const F& f) {
        show_updated(f, [](const auto& /*joined*/) {});
    }
    /// Does the same for an f that writes, and takes over what it has written.
    template <class F>
    void write_updated(const F& f) {
        show_updated(f, [&](std::span<const Master> joined) { split_masters(joined); });
        if constexpr (Precision::has_master && !Precision::gathers_codes) {
            if (!geometry_.keeps_master()) { return; }
            Engine::Kernels::convert(context_.compute_stream(), std::span<const Master>(parameters_.master()),
                                     parameters_.gather_source());
        }
    }
    /// Writes numbers as split master weights: the gather's source and the rest.
    void split_masters(std::span<const Master> from) {
        if constexpr (can_split_master<Precision>) {
            run_each<Engine>(
                context_.compute_stream(), from.size(),
                SplitWork<Gather>{from.data(), parameters_.gather_source().data(), parameters_.rest().data()});
        }
    }

    /// Copies one whole tensor into `values` on the ranks with `wanted`. Collective as unshard, and over tp where the
    /// tensor is split over it.
    /// @throws std::invalid_argument when their number is not the tensor's
    template <FloatingElement T>
    void read_full(std::size_t parameter, bool wanted, std::span<T> values, SourceLocation where) {
        if (wanted) { check_values("read_full", parameter, std::span<const T>(values), where); }
        open_window(Gathers::when_stale, where);
        const auto window = Access::make<PendingWindow<GroupState>>(*this, where).wait();
        const auto stream = context_.compute_stream();
        const IndexRange range = geometry_.parameters[parameter].range;
        const std::span<const Gather> elements = parameters_.full().subspan(range.begin, range.size());
        if constexpr (Precision::gathers_codes) {
            auto decoded = group_buffer<float>(context_, path(), "decoded parameters", range.size());
            run_each<Engine>(stream, range.size(),
                             DecodeElement<Gather>{elements.data(), parameters_.scales(parameter), decoded.data()});
            const WholeTensor<Engine, float> whole(context_, comms_, geometry_, parameter,
                                                   std::span<const float>(decoded.span()), stream, where);
            if (wanted) { whole.copy(values); }
            settle(stream);
        } else {
            const WholeTensor<Engine, Gather> whole(context_, comms_, geometry_, parameter, elements, stream, where);
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
        const auto stream = context_.reduction_stream();
        std::span<const Reduction> full = gradients_.reduced();
        typename Engine::template Buffer<Reduction> gathered;
        if (full.size() != geometry_.buffer_numel) {
            gathered = group_buffer<Reduction>(context_, path(), "gathered gradients", geometry_.buffer_numel);
            const std::string what = concat("'", path(), "' reduced gradients");
            gather_whole(comms_, geometry_, full, gathered.span(), stream,
                         {where, subject_of(comms_.shards, what), statements_.in_call(Over::shards)});
            full = gathered.span();
        }
        const IndexRange range = geometry_.parameters[parameter].range;
        const WholeTensor<Engine, Reduction> whole(context_, comms_, geometry_, parameter,
                                                   full.subspan(range.begin, range.size()), stream, where);
        whole.convert(values, [scale](Reduction sum) {
            return static_cast<Arithmetic<T>>(static_cast<double>(static_cast<Arithmetic<Reduction>>(sum)) * scale);
        });
    }

  private:
    /// `took(joined)` follows f where master weights are split.
    template <class F, class Took>
    void show_updated(const F& f, const Took& took) {
        if constexpr (Precision::has_master) {
            if (geometry_.keeps_master()) { return f(parameters_.master()); }
        }
        if constexpr (can_split_master<Precision>) {
            if (geometry_.splits_master()) {
                const auto stream = context_.compute_stream();
                auto joined =
                    group_buffer<Master>(context_, path(), "joined master weights", geometry_.updated.size());
                run_each<Engine>(
                    stream, joined.size(),
                    JoinWork<Gather>{parameters_.gather_source().data(), parameters_.rest().data(), joined.data()});
                await_host_memory(context_);
                f(joined.span());
                took(std::span<const Master>(joined.span()));
                settle(stream);
                return;
            }
        }
        if constexpr (!Precision::gathers_codes) { f(parameters_.gather_source()); }
    }
    GroupState(Context<Engine>& context, PlacedGroup<Engine>&& placed, std::span<Gather> adopted_parameters,
               std::span<Gradient> adopted_gradients);

    /// Makes the master weights of a frozen parameter those of its elements, which alone are in checkpoints.
    void settle_frozen(std::size_t parameter) {
        if constexpr (Precision::has_master && !Precision::gathers_codes) {
            const PlacedParameter& frozen = geometry_.parameters[parameter];
            const IndexRange range = intersect(frozen.range, geometry_.updated);
            if (!frozen.frozen || range.empty() || !(geometry_.keeps_master() || geometry_.splits_master())) {
                return;
            }
            const auto its = [&](auto all) {
                return all.subspan(range.begin - geometry_.updated.begin, range.size());
            };
            const auto stream = context_.compute_stream();
            const std::span<Gather> elements = its(parameters_.gather_source());
            if (geometry_.keeps_master()) {
                Engine::Kernels::convert(stream, std::span<const Gather>(elements), its(parameters_.master()));
            } else if constexpr (can_split_master<Precision>) {
                auto joined = group_buffer<Master>(context_, path(), "frozen parameters", range.size());
                Engine::Kernels::convert(stream, std::span<const Gather>(elements), joined.span());
                run_each<Engine>(stream, range.size(),
                                 SplitWork<Gather>{joined.data(), elements.data(), its(parameters_.rest()).data()});
                settle(stream);
            }
        }
    }
    /// Writes the parameter's values into `target`, rounded by `Rounding`. `digest`, unless null, takes the written
    /// values.
    template <class Rounding, class T>
    void write_range(std::size_t parameter, std::span<T> target, std::size_t origin, const TensorValueSource& values,
                     ValuesDigest* digest);
    /// Does the same with a kernel.
    template <class Rounding, class T, class F>
    void fill_range(std::size_t parameter, std::span<T> target, std::size_t origin, const F& value,
                    ValuesDigest* digest);
    /// Calls write(target, origin, rounding, digest) for each buffer that holds a parameter's values between steps:
    /// the master weights first, where the group has them.
    template <class Write>
    void for_each_written(ValuesDigest* digest, const Write& write) {
        constexpr bool splits = can_split_master<Precision>;
        const std::size_t updated = geometry_.updated.begin;
        const std::size_t resting = parameters_.resting_range().begin;
        if constexpr (Precision::has_master) {
            if (geometry_.keeps_master()) {
                // Codes are made of masters; ranks compare these where they hold the same.
                const bool compared = Precision::gathers_codes && geometry_.table.updated == Extent::full;
                write(parameters_.master(), updated, RoundToNearest<Master>{}, compared ? digest : nullptr);
            }
        }
        if constexpr (Precision::gathers_codes) { return; }
        if constexpr (splits) {
            if (geometry_.splits_master()) {
                write(parameters_.rest(), updated, LowerHalf{}, static_cast<ValuesDigest*>(nullptr));
                return write(parameters_.resting(), resting, UpperHalf{}, digest);
            }
        }
        write(parameters_.resting(), resting, RoundToNearest<Master>{}, digest);
    }
    /// Makes the digests of adopted memory as it is now, which ranks compare.
    void digest_adopted();

    void restart_gradients() noexcept override { gradients_.restart(); }

    using Base::check_values;
    using Base::comms_;
    using Base::context_;
    using Base::directed_;
    using Base::geometry_;
    using Base::gradient_generation_;
    using Base::reader_;
    using Base::statements_;
    using Base::step_;
    using Base::torn_;

    ParameterStore<Engine, Precision> parameters_;
    GradientStore<Engine, Precision> gradients_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD

#include <shardkit/sharded/group_state_buffers.hpp>  // of which a file with extern templates compiles nothing
#include <shardkit/sharded/group_state_members.hpp>  // likewise
