// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/end_program.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/adopted_ranges.hpp>
#include <shardkit/sharded/gradient_store.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/parameter_store.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/sharded/shard_info.hpp>
#include <shardkit/sharded/step_director.hpp>
#include <shardkit/sharded/step_state.hpp>
#include <shardkit/sharded/values_at.hpp>
#include <shardkit/sharded/whole_tensor.hpp>
#include <shardkit/sharded/window.hpp>

namespace shardkit::detail::inline SHARDKIT_BUILD {

/// Who reads a group's memory beside the rank's own work, a checkpoint's writer say.
class MemoryReader {
  public:
    /// Returns once nothing is read any more.
    virtual void wait() noexcept = 0;

  protected:
    ~MemoryReader() = default;
};

/// A group's buffers, communicators and place in a step. It knows its parameters as ranges of the flat buffer and
/// not as types, and its policy as values, so that it is compiled once for all groups and policies of an engine and a
/// precision.
template <class EngineType, class PrecisionType>
class GroupState {
  public:
    using Engine = EngineType;
    using Precision = PrecisionType;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;

    /// Collective over the mesh: sub-communicators are made, and the ranks compare their groups.
    /// @throws as make_communicators and place_group; MemoryError
    GroupState(Context<Engine>& context, const GroupValues& values, std::span<Gather> adopted_parameters,
               std::span<Gradient> adopted_gradients, SourceLocation where);
    /// Waits for what the streams still do with this group's memory. A destructor has nobody to tell of an error of
    /// theirs: the next wait does, or, where a stream cannot keep it, nobody. Ends the program when something still
    /// refers to the group.
    ~GroupState();
    GroupState(const GroupState&) = delete;
    GroupState& operator=(const GroupState&) = delete;

    Context<Engine>& context() noexcept { return context_; }
    const GroupGeometry& geometry() const noexcept { return geometry_; }
    const std::string& path() const noexcept { return geometry_.path; }
    bool trainable() const noexcept { return geometry_.trainable; }
    const FlatLayout& layout() const noexcept { return layout_; }
    /// Tells this group from any other of the process, whatever their addresses and paths.
    std::uint64_t identity() const noexcept { return identity_; }

    ParameterStore<Engine, Precision>& parameters() noexcept { return parameters_; }
    GradientStore<Engine, Precision>& gradients() noexcept { return gradients_; }
    StepState& step() noexcept { return step_; }
    std::uint64_t& gradient_generation() noexcept { return gradient_generation_; }

    /// Throws a UsageError, with the path before `text` where it is about a group. Here, so that a program's file
    /// compiles no text.
    [[noreturn]] static void refuse_use(SourceLocation where, const char* text);
    [[noreturn]] void refuse_group(SourceLocation where, const char* text) const;

    /// A parameter's part of a full buffer that starts at `full`.
    template <class T>
    TensorView<T> view(std::size_t parameter, T* full, const std::uint64_t& generation, SourceLocation opened) const {
        const PlacedParameter& p = geometry_.parameters[parameter];
        return {full + p.range.begin, p.part.shape(), generation, opened};
    }

    /// Who is told of the group's verbs.
    DirectedGroup& directed() noexcept { return directed_; }

    /// Opens a window; the gather is under way until `use_window`.
    void open_window(Gathers gathers, SourceLocation where);
    /// Later work on the compute stream sees the full parameters.
    void use_window(SourceLocation opened);
    /// The same in memory of its own, so that all groups of a model can be open at once.
    void summon_window(SourceLocation where);
    /// Closes one; local work only.
    void close_window() noexcept;

    // Of those of a step `verb` is the one that was called.

    /// A step begins: nothing of an earlier one is left.
    /// @throws UsageError when another has not ended
    void begin_step(SourceLocation where);
    /// A gradient buffer for one microbatch goes to the user.
    /// @throws UsageError when the last one was not added, or the group is frozen or finished
    void take_gradients(SourceLocation where, std::string_view verb);
    /// It was lost: given back without being added.
    void drop_gradients() noexcept;
    /// Takes the open microbatch's gradients in; collective over the data ranks where the policy reduces each.
    void add_gradients(SourceLocation where, std::string_view verb);
    /// It has no gradient in this step.
    /// @throws UsageError when gradients were handed out
    void skip_step(SourceLocation where);
    /// Makes the reductions that are left; collective over the data ranks and tp.
    void finish_gradients(SourceLocation where, std::string_view verb);

    /// What ranks compare of the group beside everything that moves its values.
    GroupStatements& statements() noexcept { return statements_; }
    /// Before an optimizer's update. Waits for whoever still reads the group's memory beside the rank's work.
    /// @throws UsageError when a window is open
    void begin_update(SourceLocation where) const;
    /// Before values are written by other means: waits as well for a gather that no window has shown yet, as
    /// schedules start them behind an update. @throws UsageError when a window is open; what the gather threw
    void begin_write(SourceLocation where) {
        begin_update(where);
        parameters_.wait();
    }
    /// That `first` is what a step makes first of the group, where it makes anything: for who is told of its verbs.
    /// @returns whether it does
    bool expect_update(Act first, SourceLocation where) const;
    /// That the group's update begins, and that it was given to the compute stream, with what the ranks state of it:
    /// for who is told of its verbs and for its next calls. Nothing of a frozen or skipped group.
    void announce_update(SourceLocation where) const;
    void end_update(StatementHash step, StatementHash choices, SourceLocation where);
    /// Who reads it until it says otherwise; null: nobody.
    void set_reader(MemoryReader* reader) noexcept { reader_ = reader; }
    const MemoryReader* reader() const noexcept { return reader_; }
    const GroupCommunicators<Engine>& communicators() const noexcept { return comms_; }

    /// The trainable elements that this rank counts in sums over the world, each of which some rank counts once:
    /// those of its (virtual) shard, unless another rank holds the same. As places in its reduced gradients, sorted;
    /// parameters that lie side by side are one segment.
    std::span<const IndexRange> counted_segments() const noexcept { return counted_segments_; }

    /// Holds memory that it has adopted.
    /// @throws std::invalid_argument when another group does
    void hold(std::span<const std::byte> parameters, std::span<const std::byte> gradients, SourceLocation where);

    /// Expires with the group.
    const std::shared_ptr<const void>& life() const noexcept { return life_; }

    /// Ranks over which gradients are averaged by `mean`: dp x cp.
    std::size_t data_ranks() const noexcept { return comms_.data.size(); }

    /// Sets every element from value(path, parameter name, index in the whole tensor).
    template <class F>
    void initialize(F& value, SourceLocation where) {
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
            const auto value_at = [&](std::size_t i) {
                return static_cast<double>(
                    value(std::string_view(geometry_.path), geometry_.parameters[p].name, std::uint64_t{i}));
            };
            write(p, ValuesAt::of(value_at), where);
        }
    }
    /// Sets one parameter from its full values.
    /// @throws std::invalid_argument when their number is not the parameter's; UsageError when a window is open
    template <class T>
    void load(std::size_t parameter, std::span<T> values, SourceLocation where) {
        check_values("load", parameter, std::span<const T>(values), where);
        write(parameter, ValuesAt::of(std::span<const std::remove_const_t<T>>(values)), where);
    }
    /// Copies one whole tensor into `values`, on the ranks that want it; collective as unshard, and over tp where
    /// that splits it.
    /// @throws std::invalid_argument when their number is not the tensor's
    template <FloatingElement T>
    void read_full(std::size_t parameter, bool wanted, std::span<T> values, SourceLocation where) {
        if (wanted) { check_values("read_full", parameter, std::span<const T>(values), where); }
        open_window(Gathers::when_stale, where);
        const auto window = Access::make<PendingWindow<GroupState>>(*this, where).wait();
        const WholeTensor<Engine, Gather> whole(context_, comms_.tp, geometry_, parameter, parameters_.full(),
                                                context_.compute_stream(), where);
        if (!wanted) { return; }
        whole.copy(values);
    }
    /// Copies one whole reduced gradient, times `scale`, into `values`; collective over the shard group, and over tp
    /// where that splits it.
    /// @throws std::invalid_argument when their number is not the tensor's; UsageError without a gradient
    template <FloatingElement T>
    void read_full_gradient(std::size_t parameter, double scale, std::span<T> values, SourceLocation where) {
        if (!trainable() || step_.skipped()) {
            throw_usage_error(where, "'", path(), "': read_full of a group without gradients");
        }
        check_values("read_full", parameter, std::span<const T>(values), where);
        const auto stream = context_.reduction_stream();
        std::span<const Reduction> full = gradients_.reduced();
        typename Engine::template Buffer<Reduction> gathered;
        if (full.size() != geometry_.buffer_numel) {
            gathered = group_buffer<Reduction>(context_, path(), "gathered gradients", geometry_.buffer_numel);
            const std::string what = concat("'", path(), "' reduced gradients");
            all_gather(comms_.shards, full, gathered.span(), stream,
                       {where, subject_of(comms_.shards, what), statements_.in_call(Over::shards)});
            full = gathered.span();
        }
        const WholeTensor<Engine, Reduction> whole(context_, comms_.tp, geometry_, parameter, full, stream, where);
        whole.convert(values, [scale](Reduction sum) {
            return static_cast<Arithmetic<T>>(static_cast<double>(static_cast<Arithmetic<Reduction>>(sum)) * scale);
        });
    }

    /// What this rank holds of each parameter and its master copy.
    std::vector<ShardInfo> shards() {
        std::vector<ShardInfo> list;
        const std::span<const Gather> resting = parameters_.resting();
        if (parameters_.rests_with_copies()) {
            parameters_.wait();  // for copies that a gather still writes
            // Shard by shard: the first copy is its owner's, which alone an update writes.
            for (std::size_t s = 0; s < geometry_.shards; ++s) {
                const bool current = s == geometry_.shard_index || parameters_.copies_are_current();
                list_shards(geometry_, "parameter", Placement::replicated, resting, 0,
                            HeldRange{geometry_.shard(s), s, current}, list);
            }
        } else {
            list_shards(geometry_, "parameter", geometry_.policy.parameters, resting,
                        parameters_.resting_range().begin, list);
        }
        if constexpr (Precision::has_master) {
            if (geometry_.keeps_master()) {
                list_shards(geometry_, "master", geometry_.policy.optimizer,
                            std::span<const Master>(parameters_.master()), geometry_.updated.begin, list);
            }
        }
        return list;
    }

  private:
    GroupState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, const GroupValues& values,
               std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients, SourceLocation where);
    GroupState(Context<Engine>& context, const GroupCommunicators<Engine>& communicators, PlacedGroup&& placed,
               std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients);

    /// A whole parameter of the user's: its size, and that it is the host's memory.
    template <class T>
    void check_values(std::string_view verb, std::size_t parameter, std::span<const T> values,
                      SourceLocation where) const {
        const std::size_t expected = geometry_.parameters[parameter].shape.numel();
        const std::string what =
            concat("'", path(), "' parameter '", geometry_.parameters[parameter].name, "': ", verb);
        if (values.size() != expected) {
            throw_invalid_argument(where, what, " with ", values.size(), " elements, expected ", expected);
        }
        context_.require_host_memory(values.data(), values.size_bytes(), what, where);
    }

    /// Sets one parameter from its values in every buffer of this rank.
    void write(std::size_t parameter, const ValuesAt& values, SourceLocation where);
    /// `by_way_of_master`: rounded as the master holds them, and then to T. `digest`: of what was written; or null.
    template <class T>
    void write_range(std::size_t parameter, std::span<T> target, std::size_t origin, const ValuesAt& values,
                     bool by_way_of_master, ValuesDigest* digest);
    /// Which ranks hold the same values, by Over, as far as there are some.
    static std::array<bool, 4> replicas(const GroupGeometry& group, const GroupCommunicators<Engine>& ranks) noexcept;
    /// States the values of memory that was adopted, as they are now.
    void digest_adopted();
    static Arithmetic<Master> to_master(double value) {
        return static_cast<Arithmetic<Master>>(static_cast<Master>(static_cast<Arithmetic<Master>>(value)));
    }

    Context<Engine>& context_;
    GroupGeometry geometry_;
    FlatLayout layout_;
    GroupCommunicators<Engine> comms_;
    std::unique_ptr<AdoptedRanges> adopted_;
    GroupStatements statements_;
    StepState step_;
    ParameterStore<Engine, Precision> parameters_;
    GradientStore<Engine, Precision> gradients_;
    std::uint64_t gradient_generation_ = 0;
    std::vector<IndexRange> counted_segments_;
    MemoryReader* reader_ = nullptr;
    DirectedGroup directed_;
    std::uint64_t identity_ = new_identity();
    std::shared_ptr<const void> life_ = std::make_shared<const char>('\0');
};

}  // namespace shardkit::detail::inline SHARDKIT_BUILD

#include <shardkit/sharded/group_state_members.hpp>  // of which a file with extern templates compiles nothing
