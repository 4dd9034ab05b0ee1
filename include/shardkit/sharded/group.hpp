// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/identity.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/adopted_ranges.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/sharded/gradient_store.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/held_memory.hpp>
#include <shardkit/sharded/list_shards.hpp>
#include <shardkit/sharded/parameter_store.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/sharded/step_observer.hpp>
#include <shardkit/sharded/step_state.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/sharded/window.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Reads a group's memory concurrently with the rank's own work, as a checkpoint's writer does.
class MemoryReader {
  public:
    /// Returns once all reads have ended.
    virtual void wait() noexcept = 0;

  protected:
    ~MemoryReader() = default;
};

/// Whether a backward pass writes a microbatch's gradients, or nobody does.
enum class Writes : std::uint8_t { backward, nobody };

/// The user's own full buffers, or empty.
struct AdoptedElements {
    StoredElements parameters;
    StoredElements gradients;
};

/// One group of a model on one rank, whose element types are values: geometry, communicators, buffers and the state
/// of its step. It is compiled once for all groups. A model, an accumulation, a schedule's follower and
/// a checkpoint use groups through this class alone.
class Group : NotCopied {
  public:
    /// Collective over the mesh.
    /// @throws MemoryError; std::invalid_argument when another group has adopted some of this memory
    Group(Rank& rank, PlacedGroup&& placed, const ElementTable& elements, const AdoptedElements& adopted,
          SourceLocation where);
    /// Waits for the streams' work on this group's memory. A destructor cannot report an error of that work: the next
    /// wait does, if the stream keeps the error. Ends the program when a window, a handle or a step still refers to
    /// the group.
    ~Group();

    Rank& rank() const noexcept { return rank_; }
    const GroupGeometry& geometry() const noexcept { return geometry_; }
    const std::string& path() const noexcept { return geometry_.path; }
    bool trainable() const noexcept { return geometry_.trainable; }
    const layout::FlatLayout& layout() const noexcept { return layout_; }
    const GroupCommunicators& communicators() const noexcept { return comms_; }
    /// Returns a number that no other group of the process has or had, whatever their addresses and paths.
    std::uint64_t identity() const noexcept { return identity_; }
    /// Returns a pointer whose weak copies expire with the group.
    const std::shared_ptr<void>& life() const noexcept { return life_; }
    /// Returns the number of ranks over which `mean` averages gradients: those of dp x cp.
    std::size_t data_ranks() const noexcept { return geometry_.data_ranks(); }
    /// Returns over how many gradients `mean` averages: the slices of the global batch, or the data ranks where it is
    /// not cut.
    std::size_t averaged() const noexcept {
        return geometry_.policy.slices > 0 ? geometry_.policy.slices : data_ranks();
    }

    const ElementTable& elements() const noexcept { return *elements_; }
    ParameterStore& parameters() noexcept { return parameters_; }
    GradientStore& gradients() noexcept { return gradients_; }
    StepState& step() noexcept { return step_; }
    const StepState& step() const noexcept { return step_; }
    std::uint64_t& gradient_generation() noexcept { return gradient_generation_; }
    /// The observer of its model, if any.
    ObservedGroup& observed() noexcept { return observed_; }
    /// Returns the digests that ranks compare within each collective that moves the group's values.
    GroupStatements& statements() noexcept { return statements_; }
    /// Returns the trainable elements that this rank counts in sums over the world, so that each element is counted
    /// by exactly one rank: those of its (virtual) shard, unless another rank holds the same ones. They are sorted
    /// ranges of its reduced gradients, each within one parameter. How parameters are packed changes no block of a
    /// norm.
    const List<IndexRange>& counted_segments() const noexcept { return counted_segments_; }
    /// Returns likewise the elements that this rank updates beside the rank of tp that counts them. What was reduced
    /// apart may have overflowed here alone, so norms look whether it is finite.
    const List<IndexRange>& copied_segments() const noexcept { return copied_segments_; }

    /// Returns the parameters and states that a write or a step has left half written.
    TornValues& torn() noexcept { return torn_; }
    /// Checks that no values are half written. @throws UsageError, which names `verb`, where some are
    void require_whole(std::string_view verb, SourceLocation where) const {
        step_.require_not_updated(path(), verb, where);
        if (!torn_.empty()) [[unlikely]] { torn_.require_whole(path(), geometry_.parameters.span(), verb, where); }
    }

    /// How often loads of checkpoints have read a parameter's values, and that one has.
    std::uint64_t loads(std::size_t parameter) const noexcept {
        return parameter < loads_.size() ? loads_[parameter] : 0;
    }
    void note_load(std::size_t parameter) {
        while (loads_.size() <= parameter) { loads_.push_back(0); }
        ++loads_[parameter];
    }
    /// How often loads have read all of the parameters.
    std::uint64_t version() const noexcept {
        std::uint64_t least = loads(0);
        for (std::size_t p = 1; p < geometry_.parameters.size(); ++p) { least = std::min(least, loads(p)); }
        return least;
    }

    /// Sets the reader of the group's memory that updates must wait for; null where there is none any more.
    void set_reader(MemoryReader* reader) noexcept { reader_ = reader; }
    const MemoryReader* reader() const noexcept { return reader_; }

    /// Begins a step over the model and drops what an earlier one has left. `accumulation` is the step's number in
    /// this process, `microbatches` the number of its microbatches, 0 if it is not known in advance.
    /// @throws UsageError when another step has not ended, or values are half written
    void begin_step(std::uint64_t accumulation, std::size_t microbatches, SourceLocation where) {
        require_whole("a step begins", where);
        microbatches = known_microbatches(microbatches, where);
        step_.begin(path(), where);
        accumulation_ = accumulation;
        microbatches_ = microbatches;
        gradients_.restart();
    }
    /// Returns the number of microbatches that the group's slices make, if it has any, else the given one.
    /// @throws std::invalid_argument when another number is given, 0 excepted
    std::size_t known_microbatches(std::size_t given, SourceLocation where) const;
    /// Returns the order in which ranks take the group's slices.
    SliceOrder order_of_slices() const noexcept { return slice_order(geometry_.policy, geometry_.data_ranks()); }
    void end_step() noexcept {
        step_.end();
        ++gradient_generation_;
        accumulation_ = 0;
    }
    /// Checks that the group is part of the accumulation. @throws UsageError, which names `verb`, where it is not
    void require_accumulation(std::uint64_t accumulation, std::string_view verb, SourceLocation where) const {
        if (accumulation == accumulation_) [[likely]] { return; }
        refuse_accumulation(verb, where);
    }
    /// Checks that the group has gradients in this step.
    /// @throws UsageError, which names `verb`, for a frozen group or one that this step has skipped
    void require_gradients(std::string_view verb, SourceLocation where) const {
        if (!trainable() || step_.skipped()) {
            throw_usage_error(where, "'", path(), "': ", verb, " of a group without gradients");
        }
    }
    /// Returns the number of microbatches of this step, 0 if it is not known in advance.
    std::size_t microbatches() const noexcept { return microbatches_; }
    void set_microbatches(std::size_t microbatches) noexcept { microbatches_ = microbatches; }
    /// Returns whether the microbatch that was added is known to be the step's last one.
    bool has_all_microbatches() const noexcept { return microbatches_ != 0 && step_.added() >= microbatches_; }

    /// Checks with the schedule that is followed that `first`, the act that a norm or an update begins with, comes
    /// next.
    /// @returns false for a frozen or skipped group, which a step leaves as it is
    bool expect_update(Act first, SourceLocation where) const {
        if (!trainable() || step_.skipped()) { return false; }
        observed_.expect(first, where, first == Act::norm ? "global_norm" : "step");
        return true;
    }
    /// Informs the recorder or follower that the group's update begins.
    void announce_update(SourceLocation where) const {
        if (trainable() && !step_.skipped()) { observed_.before(Act::update, where); }
    }
    /// Informs the recorder or follower that the update was given to the compute stream, and adds the update to what
    /// ranks compare in the group's next calls. Does nothing for a frozen or skipped group.
    void end_update(StatementHash step, StatementHash choices, SourceLocation where) {
        if (!trainable() || step_.skipped()) { return; }
        statements_.add_update(step, choices);
        observed_.after(Act::update, where);
    }

    /// All parameters are torn until they are written.
    void begin_initialize(SourceLocation where) {
        begin_write(where);
        for (std::size_t p = geometry_.parameters.size(); p > 0; --p) {
            torn_.begin(p - 1, TornValues::parameters, "initialize", where);
        }
    }
    /// Sets one parameter from its full values in every buffer of this rank.
    void write(std::size_t parameter, const TensorValueSource& values, SourceLocation where);
    /// Calls write(how, target, origin, digest) for each buffer that holds a parameter's values between steps: the
    /// master weights first, where the group has them. It begins with element `origin` of the flat order. The
    /// parameter is torn until then; `digest`, unless null, takes the written values, which ranks compare.
    template <class Write>
    void write_each(std::size_t parameter, const Write& write) {
        ValuesDigest values(geometry_.parameters[parameter].range.size());
        write_buffers(statements_.compares_values() ? &values : nullptr, write);
        settle_frozen(parameter);
        parameters_.end_write();
        torn_.end(parameter, TornValues::parameters);
        if (statements_.compares_values()) { statements_.set_values(parameter, values); }
    }
    /// Returns the elements that this rank holds of each parameter and of its master weights.
    std::vector<ShardInfo> shards();
    /// Returns the memory whose values the rank holds at the moment, an item for each row of the placement table that
    /// has some: not the optimizer's states, and reduced gradients only between their reduction and their update.
    /// Later work on the compute stream sees the values.
    List<HeldMemory> held();
    /// Copy a whole tensor or gradient, as the functions of group_ref.hpp.
    void read_full(std::size_t parameter, bool wanted, const TensorValueTarget& values, SourceLocation where);
    void read_full_gradient(std::size_t parameter, double scale, const TensorValueTarget& values,
                            SourceLocation where);
    /// Calls show(to, type, values) with the elements that this rank updates, `geometry.updated` of the flat order:
    /// the master weights where the group has them, joined for the call where they are split. `to_write`: takes over
    /// what it has written.
    void show_updated(bool to_write, ShownTo show, void* to);
    /// Returns memory for the elements that this rank updates as fp32, and with split masters joined.
    HostBuffer<float> buffer_of_masters() const;
    HostBuffer<float> join_masters() const;
    /// Splits them again. The host waits where its memory could end before.
    void split_masters(const StoredElements& joined);
    /// Prepares an optimizer's update: waits for the reader of the group's memory, if any.
    /// @throws UsageError when a window is open
    void begin_update(SourceLocation where) const {
        parameters_.begin_update(where);
        if (reader_ != nullptr) { reader_->wait(); }
    }
    /// Prepares a write that is no update: also waits for a gather that no window has shown yet, which a schedule may
    /// have started behind an update. @throws UsageError when a window is open; any error of that gather
    void begin_write(SourceLocation where) {
        step_.require_not_updated(path(), "load", where);
        begin_update(where);
        parameters_.wait();
    }
    /// Ends the write of a checkpoint's values.
    void end_load() {
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) { settle_frozen(p); }
        parameters_.end_load();
        statements_.forget_values();
    }

    /// Checks that the user's values have the parameter's size and lie in host memory.
    void check_whole(std::string_view verb, std::size_t parameter, std::size_t given,
                     std::span<const std::byte> memory, SourceLocation where) const {
        const std::size_t expected = geometry_.parameters[parameter].shape.numel();
        const std::string what =
            concat("'", path(), "' parameter '", geometry_.parameters[parameter].name, "': ", verb);
        if (given != expected) {
            throw_invalid_argument(where, what, " with ", given, " elements, expected ", expected);
        }
        rank_.require_host_memory(memory.data(), memory.size(), what, where);
    }

    std::size_t open_windows() const noexcept { return parameters_.windows(); }
    /// Opens a window. Its gather runs until `use_window`.
    void open_window(Gathers gathers, SourceLocation where) {
        require_whole("unshard", where);
        observed_.open(where);
        if (observed_.led()) {
            parameters_.announce(gathers, where);
        } else {
            parameters_.open(gathers, where);
        }
    }
    /// Opens a window in memory of its own, so that all groups of a model can be open at once. Its gather runs until
    /// `use_window`.
    void summon_window(SourceLocation where) {
        require_whole("summon_full_params", where);
        observed_.open(where);
        parameters_.summon(where);
    }
    /// Lets later work on the compute stream wait for the full parameters.
    void use_window(SourceLocation opened) {
        observed_.before(Act::use, opened);
        parameters_.show(opened);
        parameters_.wait();
        observed_.after(Act::use, opened);
    }
    /// Closes a window. Local work only.
    void close_window() noexcept {
        parameters_.close();
        observed_.closed();
    }
    /// Closes a window that was never used; its gather may still run.
    void drop_window() noexcept {
        parameters_.drop();
        close_window();
    }

    // In the following functions `verb` is the function that the user called.

    /// Returns whether the buffers of the next microbatch are free.
    bool has_room_for_gradients() const noexcept { return gradients_.has_room(); }
    /// Hands out a gradient buffer for one microbatch to the user, or one of zeros that is added as it is.
    /// @throws UsageError when the last one was not added, or the group is frozen or finished
    void take_gradients(SourceLocation where, std::string_view verb, Writes writes);
    /// Takes back a gradient buffer whose handle was destroyed; its gradients are not added.
    void drop_gradients() noexcept {
        ++gradient_generation_;
        gradients_.discard();
        step_.drop();
    }
    /// Adds the open microbatch's gradients. Collective over the data ranks where the policy reduces every
    /// microbatch.
    void add_gradients(SourceLocation where, std::string_view verb);
    /// Marks the group as having no gradient in this step.
    /// @throws UsageError when gradients were handed out
    void skip_step(SourceLocation where) {
        observed_.expect(Act::skip, where, "skip");
        step_.check_skip(path(), where);
        observed_.before(Act::skip, where);
        step_.skip();
        observed_.after(Act::skip, where);
    }
    /// Makes the remaining reductions for the function that was called. Collective over the data ranks and tp.
    void finish_gradients(SourceLocation where, std::string_view verb) {
        observed_.finish(where, verb);
        step_.finish(path(), where);
        if (!observed_.led()) { gradients_.reduce_due(where); }
    }
    /// Adds to `stated` a digest of those reduced gradients that are equal on every rank of the world.
    void digest_reduced(StatedStep& stated);
    /// Adds what this rank counts of each parameter's reduced gradients to `norms`, one for each. Engine memory.
    /// `lanes`: memory to work in, AddPartialNorms::most_lanes.
    void add_norms(const double* scale, std::span<PartialNorms> norms, PartialNorms* lanes);
    /// Returns whether a window or a step still uses memory that a schedule has chosen.
    bool uses_scheduled_memory() const noexcept {
        return parameters_.shows_held() || (step_.busy() && gradients_.placed());
    }

  private:
    Rank& rank_;
    GroupGeometry geometry_;
    layout::FlatLayout layout_;
    GroupCommunicators comms_;
    Owned<AdoptedRanges> adopted_;
    GroupStatements statements_;
    StepState step_;
    TornValues torn_;
    List<std::uint64_t> loads_;       // of parameters, as far as there were some
    std::uint64_t accumulation_ = 0;  // number of its accumulation; 0 outside of a step
    std::size_t microbatches_ = 0;
    std::uint64_t gradient_generation_ = 0;
    List<IndexRange> counted_segments_;
    List<IndexRange> copied_segments_;
    MemoryReader* reader_ = nullptr;
    ObservedGroup observed_;
    const ElementTable* elements_;
    ParameterStore parameters_;
    GradientStore gradients_;

    Group(Rank& rank, PlacedGroup&& placed, const ElementTable& elements, const AdoptedElements& adopted);
    /// Makes the master weights of a frozen parameter those of its elements, which alone are in checkpoints.
    void settle_frozen(std::size_t parameter);
    void list_segments();
    template <class Write>
    void write_buffers(ValuesDigest* digest, const Write& write) {
        const StoredElements resting = parameters_.resting();
        const std::size_t at_rest = parameters_.resting_range().begin;
        const bool codes = geometry_.sizes.codes.gathered;
        if (geometry_.keeps_master()) {
            // Codes are made of masters; ranks compare these where they hold the same.
            const bool compared = codes && geometry_.table.updated == Extent::full;
            write(WrittenAs::masters, parameters_.master(), geometry_.updated.begin, compared ? digest : nullptr);
        }
        if (codes) { return; }
        if (geometry_.splits_master()) {
            write(WrittenAs::lower_halves, parameters_.halves(), geometry_.updated.begin, nullptr);
            write(WrittenAs::upper_halves, resting, at_rest, digest);
        } else {
            write(WrittenAs::gathered, resting, at_rest, digest);
        }
    }
    /// Makes the digests of adopted memory as it is now, which ranks compare.
    void digest_adopted();
    [[noreturn]] void refuse_accumulation(std::string_view verb, SourceLocation where) const {
        throw_usage_error(where, "'", path(), "': ", verb, "() outside of an accumulation: ",
                          accumulation_ == 0 ? "it is not one of this accumulation's groups"
                                             : "this group is in another accumulation, which has not ended");
    }
    /// Returns for each Over whether several of these ranks hold the same values.
    static std::array<bool, 4> replicas(const GroupGeometry& group, const GroupCommunicators& ranks) noexcept {
        const Extent at_rest = group.table.find(Role::parameters)->extent;
        const bool whole = at_rest == Extent::full;
        return {whole && ranks.shards.size() > 1, at_rest != Extent::piece && ranks.replicas.size() > 1,
                whole && ranks.data.size() > 1, false};
    }

    std::uint64_t identity_ = new_identity();
    std::shared_ptr<void> life_ = std::make_shared<char>();
};

}  // namespace shardkit::detail SHARDKIT_BUILD

#include <shardkit/sharded/group_functions.hpp>
#include <shardkit/sharded/group_members.hpp>
