// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The gradients of a group on one rank, from the full buffer that a backward pass adds to, to the reduced values.
/// Makes the reductions that the placement table lists; the divisor is applied elsewhere.
class GradientStore : StoreParts {
  public:
    using Sums = ElementTable::Sums;

    /// `adopted` is the user's own full gradient buffer, or empty where the library allocates it.
    GradientStore(const StoreParts& of, const StoredElements& adopted)
        : StoreParts(of), subject_(subject("gradients")), full_(adopted.data()) {
        const GroupGeometry& geometry = *geometry_;
        const GroupRows& table = geometry.table;
        if (table.find(Role::gradients) == nullptr) { return; }
        const IndexRange held = reduced_range();
        tp_sum_ = relative_to(intersect(held, geometry.tp_sum), held.begin);
        zeroed_ = zeroed_ranges(geometry);
        const std::size_t sum = geometry.sizes.reduction;
        if (table.gradient_bytes > 0) {
            lease_ = lease(SlotPurpose::gradient, table.gradient_bytes);
        } else if (adopted.empty()) {
            full_memory_ = buffer("full gradients", bottom().size() * geometry.sizes.gradient);
            full_ = full_memory_.data();
        }
        if (const BufferRow* const reduced = table.find(Role::reduced); reduced != nullptr) {
            reduces_beside_ = true;
            if (table.reduced_bytes > 0) {
                sums_ = lease(SlotPurpose::sums, table.reduced_bytes);
            } else {
                reduced_memory_ = buffer("reduced gradients", geometry.range(reduced->extent).size() * sum);
            }
        }
        if (const BufferRow* const sums = table.find(Role::subtotals); sums != nullptr) {
            const std::size_t numel = geometry.range(sums->extent).size();
            subtotal_numel_ = geometry.sources() * numel;
            subtotals_ = buffer("sums of slices", sums->count * numel * sum);
            stacks_slices_ = in_place() && !table.reduces_each && adopted.empty();
        }
    }

    /// Returns whether `open` finds the buffers that it leases.
    bool has_room() const noexcept { return (placed_ != nullptr || lease_.has_room()) && sums_.has_room(); }
    /// Opens a full gradient buffer for one microbatch. Unless it still accumulates earlier microbatches it is
    /// zeroed, padding included, except for what `overwrites` gives the backward pass to overwrite. A slice that is
    /// not reduced has the place in the stack of sums to which it belongs, if its type is theirs.
    void open(bool overwrites, SourceLocation where) {
        const auto stream = rank_->compute_stream();
        if (!leases_full() || subtotal_numel_ > 0) {
            stream.wait(reduced_ready_);  // reductions of an earlier step that nobody waited for
        }
        if (!leases_full()) {
            // The buffer is the group's own.
        } else if (placed_ != nullptr) {
            full_ = placed_;
        } else {
            stream.wait(lease_.acquire(geometry_->path, where));
            full_ = lease_.data();
        }
        if (stacks_slices_) { slice_ = slice_carry(step_->added).depth; }
        // No wait: its last use was an update in this stream, or a reduction in the stream of the next one.
        if (geometry_->table.reduced_bytes > 0) { sums_.acquire(geometry_->path, where); }
        const bool begins = !adds_on(*step_, geometry_->table);
        overwrites_ = begins && overwrites && geometry_->overwritten_numel > 0;
        if (begins && !overwrites_) { elements_->zero(stream, full()); }
        if (!overwrites_) { return; }
        if constexpr (checked) { elements_->mark_unwritten(stream, full()); }
        for (const IndexRange range : zeroed_) { elements_->zero(stream, full().subspan(range.begin, range.size())); }
    }
    /// Returns whether the backward pass must overwrite what the open buffer holds for this parameter.
    bool overwrites(std::size_t parameter) const noexcept {
        return overwrites_ && geometry_->parameters[parameter].leaves_unzeroed();
    }
    /// Checks, where the host reads the buffer, that the backward pass has overwritten what was not zeroed.
    /// @throws UsageError that names parameter and element
    void require_overwritten(SourceLocation where) const {
        const std::uint64_t mark = elements_->unwritten_bits();
        if (!host_reads(rank_->compute_stream()) || !overwrites_ || mark == 0) { return; }
        await_host_memory(*rank_);
        const std::size_t size = geometry_->sizes.gradient;
        for (const PlacedParameter& parameter : geometry_->parameters) {
            const IndexRange range = parameter.range;
            if (!parameter.leaves_unzeroed()) { continue; }
            for (std::size_t i = 0; i < geometry_->sources() * range.size(); ++i) {
                const std::size_t element = i % range.size();
                const StoredElements its = of_source(i / range.size()).subspan(range.begin + element, 1);
                if (std::memcmp(its.data(), &mark, size) != 0) { continue; }
                throw_usage_error(where, "'", geometry_->path, "' parameter '", parameter.name, "': element ",
                                  element,
                                  " of its gradient was not overwritten, or was added to; expected all of them to be "
                                  "overwritten where gradients.overwrites(parameter)");
            }
        }
    }
    /// Returns whether a schedule has chosen the memory of the leased buffers.
    bool placed() const noexcept { return placed_ != nullptr; }
    /// Sets the memory, chosen by a schedule, of the full buffers and of the addends of later microbatches.
    void place(void* full) noexcept { placed_ = full; }
    void place_addend(void* addend) noexcept { placed_addend_ = addend; }
    /// Returns the buffer of a microbatch to the pool without adding it.
    void discard() noexcept {
        slice_ = 0;
        if (leases_full()) { lease_.release(rank_->compute_stream().record()); }
    }
    /// Marks the microbatch's gradients as written, behind the work in the compute stream. Slices that are not
    /// reduced join the sums of the earlier ones.
    void add(SliceCarry carry) {
        const auto stream = rank_->compute_stream();
        if (subtotal_numel_ > 0 && !geometry_->table.reduces_each) {
            if (carry.merges > 0) {
                merge(elements_->gradients, full(), carry, stream);
            } else if (!stacks_slices_) {
                elements_->to_sums(stream, full(), sum(carry.depth));
            }
            slice_ = 0;
            if (in_place() && step_->added == geometry_->table.slices) {
                // The user's memory gets the sum of all slices.
                if (!stacks_slices_) { elements_->to_sums(stream, sum(0), full()); }
                join_sources(stream);
            }
        }
        written_ = stream.record();
    }
    /// Gives the gradients' buffers back behind the group's update in the compute stream, where they are leased.
    void release() noexcept {
        if (!geometry_->table.releases) { return; }
        const Event updated = rank_->compute_stream().record();
        lease_.release(updated);
        sums_.release(updated);
    }
    /// Makes the reductions that are due where no schedule leads. Collective over the data ranks, then over tp.
    void reduce_due(SourceLocation where) {
        while (const auto act = due_reduction(*step_, geometry_->table)) { reduce(*act, where); }
    }
    /// Reduces the microbatches that were added since the last reduction. Collective over the data ranks.
    void reduce_added(SourceLocation where) { reduce(Act::reduce, where); }
    /// Makes the remaining sums over replicas and over tp. Collective over the data ranks, then over tp.
    void finish(SourceLocation where) { reduce(Act::all_reduce, where); }
    /// Lets later work on the compute stream wait for the reduced gradients.
    void wait() { rank_->compute_stream().wait(reduced_ready_); }
    /// Lets reductions wait for the gradients that were added last, as the next one does itself.
    void await_added() { rank_->reduction_stream().wait(written_); }

    /// Returns the reduced gradients on this rank: elements `reduced_range` of the flat buffer, as sums that are not
    /// yet divided.
    StoredElements reduced() const noexcept { return held(reduced_range()); }
    /// Returns some of the sums of microbatches.
    StoredElements held(IndexRange range) const noexcept {
        return held_sums().subspan(range.begin - sums_range_.begin, range.size());
    }
    IndexRange reduced_range() const noexcept { return geometry_->range(geometry_->table.reduced); }
    /// Returns the sums of microbatches, of which `reduced` is a part where they are reduced further at last.
    StoredElements held_sums() const noexcept {
        if (in_place() && !reduces_beside_) { return full().subspan(sums_range_.begin, sums_range_.size()); }
        if (geometry_->table.reduced_bytes == 0) { return {reduced_memory_.span(), elements_->reduction}; }
        return {sums_.data(), sums_range_.size(), elements_->reduction};
    }

    /// Returns the gradients of the open microbatch of one of geometry().sources() ranks' tokens.
    StoredElements of_source(std::size_t source) const noexcept {
        return full().subspan(source * geometry_->buffer_numel, geometry_->buffer_numel);
    }
    /// Returns the full buffer of the open microbatch, or of the step where microbatches accumulate in it: those of
    /// all sources, one behind the other, and in the first place at last their sum.
    StoredElements full() const noexcept { return slice_ > 0 ? sum(slice_) : bottom(); }

    /// Abandons a step that has failed, and releases the buffers that its reductions still hold.
    void restart() noexcept {
        slice_ = 0;
        if (leases_full()) {
            const auto stream = rank_->reduction_stream();
            lease_.release(stream.record());
            sums_.release(stream.record());
            addend_.release(stream.record());
        }
    }

  private:
    bool in_place() const noexcept { return geometry_->sizes.reduces_in_place; }
    bool leases_full() const noexcept { return geometry_->table.gradient_bytes > 0; }
    StoredElements bottom() const noexcept {
        return {full_, geometry_->sources() * geometry_->buffer_numel, elements_->gradient};
    }
    /// Returns whether the row has no elements to sum. All ranks of tp agree on this, as they hold the same range.
    bool is_nothing(const CollectiveRow& row) const noexcept {
        return row.extent == Extent::tp_sum && tp_sum_.empty();
    }
    void reduce(Act act, SourceLocation where) {
        const Applied applied = apply_act(*step_, act, geometry_->table);
        const auto stream = rank_->reduction_stream();
        stream.wait(written_);
        bool borrows = false;
        const CollectiveRow* last = nullptr;
        for (const CollectiveRow& row : applied.calls) {
            if (is_nothing(row)) { continue; }
            reduce(row, applied.carry, stream, where);
            borrows = borrows || row.target == Role::addend;
            last = &row;
        }
        const bool adds = last != nullptr && last->when == When::later_microbatch;
        if (adds) { accumulate(last->target, applied.carry, stream); }
        if (borrows) { addend_.release(stream.record()); }
        reduced_ready_ = stream.record();
        if (applied.gives_back) { lease_.release(reduced_ready_); }
        *step_ = applied.next;
    }
    ReduceOp summed() const noexcept { return op_of(geometry_->policy.summation); }
    /// Makes one collective of the table. `carry` says how a microbatch's sum joins those of the earlier ones.
    void reduce(const CollectiveRow& row, SliceCarry carry, const Stream& stream, SourceLocation where) {
        const auto add_up = [&](const Sums& by, ReduceOp summed, const StoredElements& from,
                                const StoredElements& to) {
            const engine::CallSite site{where, subject_, statements_->in_call(row.over)};
            const bool in_place = row.in_place();
            if (row.verb == Verb::all_reduce) {
                if (in_place) {
                    all_reduce_in_place(comms_[row.over], summed, by.reducer(), to, stream, site);
                } else {
                    all_reduce(comms_[row.over], summed, by.reducer(), from, to, stream, site);
                }
            } else if (in_place) {
                reduce_scatter_in_place(comms_[row.over], summed, by.reducer(), to, stream, site);
            } else {
                reduce_scatter(comms_[row.over], summed, by.reducer(), from, to, stream, site);
            }
        };
        if (row.extent == Extent::tp_sum) {
            const StoredElements part = reduced().subspan(tp_sum_.begin, tp_sum_.size());
            add_up(elements_->sums, ReduceOp::sum, part, part);
        } else if (row.in_place()) {
            const StoredElements values = row.target == Role::addend    ? addend()
                                          : row.target == Role::reduced ? held_sums()
                                                                        : full_part(row.extent);
            add_up(elements_->sums, summed(), values, values);
        } else {
            const StoredElements target = row.target == Role::addend           ? borrowed_addend(where)
                                          : row.when == When::first_microbatch ? sum(carry.depth)
                                                                               : held_sums();
            if (row.source == Role::subtotals || row.source == Role::addend) {
                const bool slices = row.source == Role::subtotals;
                add_up(elements_->sums, summed(), slices ? subtotal(0) : addend(), target);
            } else {
                add_up(elements_->gradients, summed(), full_part(row.extent), target);
            }
        }
    }
    StoredElements full_part(Extent extent) const noexcept {
        const IndexRange range = geometry_->range(extent);
        return full().subspan(range.begin, range.size());
    }
    StoredElements borrowed_addend(SourceLocation where) {
        if (placed_addend_ != nullptr) { return addend(); }
        if (!addend_joined_) {
            addend_ = lease(SlotPurpose::reduce, geometry_->table.addend_bytes);
            addend_joined_ = true;
        }
        addend_.acquire(geometry_->path, where);  // its last use was in this stream
        return addend();
    }
    StoredElements addend() const noexcept {
        void* const memory = placed_addend_ != nullptr ? placed_addend_ : addend_.data();
        return {memory, addend_range().size(), elements_->reduction};
    }
    IndexRange addend_range() const noexcept { return geometry_->range(geometry_->table.find(Role::addend)->extent); }
    /// Adds the reduction of a later microbatch to the sums of the earlier ones.
    void accumulate(Role reduced_into, SliceCarry carry, const Stream& stream) {
        const IndexRange sums = sums_range_;
        const auto added = reduced_into == Role::addend
                               ? addend().subspan(sums.begin - addend_range().begin, sums.size())
                               : full().subspan(sums.begin, sums.size());
        merge(elements_->sums, added, carry, stream);
    }
    /// Adds a microbatch's sum to the last of the earlier sums, and that to the one before it, as `carry` says. `by`:
    /// of the type of that sum.
    void merge(const Sums& by, const StoredElements& last, SliceCarry carry, const Stream& stream) {
        std::size_t at = carry.depth;
        const std::size_t end = carry.depth - carry.merges;
        by.accumulate(stream, last, sum(--at));
        for (; at > end; --at) { elements_->sums.accumulate(stream, sum(at), sum(at - 1)); }
    }
    /// Adds up the sources' sums of all their slices, which are neighbours in the tree, into that of the first one.
    void join_sources(const Stream& stream) {
        const std::size_t sources = geometry_->sources();
        for (std::size_t half = 1; half < sources; half *= 2) {
            for (std::size_t first = 0; first < sources; first += 2 * half) {
                elements_->sums.accumulate(stream, of_source(first + half), of_source(first));
            }
        }
    }
    /// Returns one of the sums of microbatches that wait for others, the oldest first.
    StoredElements sum(std::size_t number) const noexcept {
        if (geometry_->table.reduces_each) { return number == 0 ? held_sums() : subtotal(number - 1); }
        if (stacks_slices_) { return number == 0 ? bottom() : subtotal(number - 1); }
        return subtotal(number);
    }
    StoredElements subtotal(std::size_t number) const noexcept {
        return StoredElements(subtotals_.span(), elements_->reduction)
            .subspan(number * subtotal_numel_, subtotal_numel_);
    }

    const engine::CallSubject* subject_;  // subject of the reductions
    void* full_ = nullptr;
    void* placed_ = nullptr;  // chosen by a schedule; else null
    void* placed_addend_ = nullptr;
    Buffer full_memory_;
    Buffer reduced_memory_;
    Buffer subtotals_;                // one behind the other
    std::size_t subtotal_numel_ = 0;  // of all sources
    List<IndexRange> zeroed_;         // ranges of the full buffer: all that nobody overwrites
    std::size_t slice_ = 0;           // place in the stack of sums of the microbatch under way
    IndexRange sums_range_ = geometry_->range(geometry_->table.summed());
    SlotLease lease_;
    SlotLease sums_;
    SlotLease addend_;
    Event written_{};
    Event reduced_ready_{};
    IndexRange tp_sum_;            // range within the reduced values
    bool reduces_beside_ = false;  // the reduction writes to another buffer than the full one
    bool addend_joined_ = false;
    bool overwrites_ = false;     // of the open microbatch: the backward pass overwrites
    bool stacks_slices_ = false;  // unreduced slices are written into the stack, whose bottom is the full buffer
};

}  // namespace shardkit::detail SHARDKIT_BUILD
