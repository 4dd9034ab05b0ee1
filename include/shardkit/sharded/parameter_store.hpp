// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/window.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The parameters of a group on one rank: full copy, resting shard or piece of it, second shard, master weights, and
/// whether the full copy is stale. The optimizer writes `gather_source` and the next all-gather sends it, without a
/// copy in between. Codes are begun by the update, or by the first gather after any other write of the masters, which
/// also finishes them: so their scales always belong to them.
class ParameterStore : StoreParts {
  public:
    /// `adopted` is the user's own full buffer, or empty where the library allocates it.
    ParameterStore(const StoreParts& of, const StoredElements& adopted)
        : StoreParts(of), subject_(subject("parameters")), full_(adopted.data()) {
        const GroupGeometry& geometry = *geometry_;
        const std::size_t size = geometry.sizes.gather;
        gathers_beside_ = geometry.table.find(Role::gathered) != nullptr;
        if (leases_full()) {
            lease_ = lease(SlotPurpose::gather, full_numel() * size);
        } else if (adopted.empty()) {
            full_memory_ = buffer("full parameters", full_numel() * size);
            full_ = full_memory_.data();
        }
        if (gathers_beside_) { shard_ = buffer("parameter shard", resting_range().size() * size); }
        if (geometry.table.find(Role::secondary) != nullptr) {
            secondary_ = buffer("secondary shard", geometry.own.size() * size);
        }
        if (coded()) {
            const Extent extent = gathers_beside_ ? Extent::shard : Extent::full;
            scales_ =
                group_buffer<float>(*rank_, geometry.path, "scales", geometry.scale_bytes(extent) / sizeof(float));
        }
        if (geometry.splits_master()) {
            rest_ = buffer("halves of master weights", geometry.updated.size() * sizeof(std::uint16_t),
                           geometry.offloads());
        } else if (geometry.keeps_master()) {
            master_ = buffer("master weights", geometry.updated.size() * geometry.sizes.master, geometry.offloads());
            if (!adopted.empty()) { elements_->to_masters(rank_->compute_stream(), gather_source(), master()); }
        }
    }

    /// Opens a window: leases a full buffer, and gathers into it where the full copy is stale.
    /// @throws UsageError when it would gather and `gathers` forbids it, or no slot is free
    void open(Gathers gathers, SourceLocation where) {
        announce(gathers, where);
        try {
            show(where);
        } catch (...) {
            --step_->asked;
            throw;
        }
    }
    /// Registers a window; `show` provides its memory. In a step that a schedule leads, a window shows nothing before
    /// it is used.
    /// @throws UsageError when it would gather and `gathers` forbids it
    void announce(Gathers gathers, SourceLocation where) {
        if (gathers == Gathers::never && is_stale()) {
            throw_usage_error(where, "'", geometry_->path,
                              "': this window would gather, and Gathers::never was given; call summon_full_params on "
                              "all ranks before, and keep what it gives");
        }
        ++step_->asked;
        opened_ = where;
    }
    /// Provides the memory of the registered windows, and gathers where the schedule has not done it.
    void show(SourceLocation where) {
        if (step_->asked == 0) { return; }
        if (leases_full() && full_ == nullptr) {
            rank_->communication_stream().wait(lease_.acquire(geometry_->path, where));
            full_ = lease_.data();
        }
        refresh(where);
        apply(Act::use);
    }
    /// Ends a window that was never used.
    void drop() {
        if (step_->asked > 0) { apply(Act::use); }
        rank_->compute_stream().settle(gathered_);
        joined_ = true;
    }
    /// Keeps the full copy for a schedule, with or without windows, in `memory` where the policy releases it at
    /// reshard. Gathers where it is stale.
    void hold(void* memory, SourceLocation where) {
        if (leases_full() && full_ == nullptr) { full_ = memory; }
        refresh(where);
        held_ = leases_full();
    }
    /// Ends what `hold` began. Windows that show nothing yet gather for themselves.
    void let_go() noexcept {
        held_ = false;
        if (step_->windows == 0) { release(); }
    }
    /// Gathers into the full copy where it is stale.
    void refresh(SourceLocation where) {
        if (!is_stale()) { return; }
        // A graph may run behind other writes than those that the host saw before it.
        if (captured()) { step_->coded = step_->begun = false; }
        const Applied gathered = apply_act(*step_, Act::gather, geometry_->table);
        step_->begun = false;  // even where this fails: codes take the place of what was begun
        try {
            std::span<const CollectiveRow> calls = gathered.calls;
            if (gathered.makes_codes) { make_codes(calls, gathered.begun, where); }
            for (const CollectiveRow& row : calls) { gather(row, where); }
        } catch (...) {
            if (step_->windows == 0) { release(); }
            throw;
        }
        *step_ = gathered.next;
        gathered_in_ = capture();
    }
    /// Opens a window whose memory belongs to the group, where it would otherwise lease a slot, until the last window
    /// ends. So all groups of a model can be open at once.
    /// @throws MemoryError when there is no memory
    void summon(SourceLocation where) {
        if (leases_full() && full_ == nullptr) {
            summoned_ = buffer("summoned parameters", full_numel() * geometry_->sizes.gather);
            full_ = summoned_.data();
        }
        open(Gathers::when_stale, where);
    }
    std::size_t windows() const noexcept { return step_->windows + step_->asked; }
    /// Returns whether a window shows memory that a schedule has chosen.
    bool shows_held() const noexcept {
        return windows() > 0 && leases_full() && full_ != nullptr && !lease_.held() && summoned_.size() == 0;
    }
    /// Returns where the last window was opened.
    SourceLocation opened() const noexcept { return opened_; }
    /// Lets later work on the compute stream wait for the gathered values.
    void wait() {
        rank_->compute_stream().wait(gathered_);
        joined_ = true;
    }
    /// Lets gathers wait for the last update, as the next one does itself.
    void await_update() { rank_->communication_stream().wait(updated_); }
    /// Closes a window. Local work only.
    void close() noexcept {
        const Applied closed = apply(Act::close);
        if (windows() > 0) { return; }
        ++generation_;
        // With updates in graphs, the next window may gather without an update before it: the gather then waits for
        // this event.
        if (update_captured_) { updated_ = rank_->compute_stream().record(); }
        if (closed.gives_back && !held_) { release(); }
    }

    StoredElements full() const noexcept { return gathered(full_, geometry_->buffer_numel); }
    const std::uint64_t& generation() const noexcept { return generation_; }
    /// Returns the scales of the parameter whose range in the full buffer begins there.
    /// @pre what is gathered are codes
    const float* scales(std::size_t parameter) const noexcept {
        if (geometry_->sizes.codes.block == 0) { return scales_.data() + parameter; }
        return full_scales().data() + scale_number(geometry_->parameters[parameter].range.begin);
    }

    /// Returns the elements `geometry.updated` in the gathered type, which an update writes.
    StoredElements gather_source() const noexcept {
        return resting().subspan(geometry_->updated.begin - resting_range().begin, geometry_->updated.size());
    }
    /// Returns the scales of the blocks of these elements; those of all parameters where each has one.
    std::span<float> updated_scales() const noexcept {
        return scales_.span().subspan(gathers_beside_ ? 0 : scale_number(geometry_->updated.begin));
    }
    /// Returns the elements `geometry.updated` in the master type; empty where the group keeps no master weights.
    StoredElements master() const noexcept { return {master_.span(), elements_->master}; }
    /// Returns the lower halves of split master weights, of the elements `geometry.updated`; the upper ones are
    /// `gather_source`. As elements of as many bytes; empty where the group splits none.
    StoredElements halves() const noexcept { return {rest_.span(), elements_->gather}; }
    /// Returns what lies in this rank's memory between steps: `resting_range` of the flat buffer.
    StoredElements resting() const noexcept {
        return gathers_beside_ ? StoredElements(shard_.span(), elements_->gather) : full();
    }
    IndexRange resting_range() const noexcept {
        return geometry_->range(geometry_->table.find(Role::parameters)->extent);
    }
    /// Returns this rank's shard, which stays in the gathered type beside its piece. Empty where none is kept.
    StoredElements secondary() const noexcept { return {secondary_.span(), elements_->gather}; }
    /// Returns whether what windows gather within the group is current: a kept shard, or codes.
    bool shard_is_current() const noexcept { return step_->coded && !captured(); }

    /// Returns whether copies of what other ranks update rest here. Their updates leave the copies stale until a
    /// gather.
    bool rests_with_copies() const noexcept { return gathers() && resting_range() != geometry_->updated; }
    /// Returns whether these copies are current.
    bool copies_are_current() const noexcept { return gathers_beside_ ? shard_is_current() : !is_stale(); }

    /// Checks that no window is open, which would show a half-finished update. @throws UsageError when one is
    void begin_update(SourceLocation where) const {
        if (apply_act(*step_, Act::update, geometry_->table).broken.has(StepRule::windows_end_in_step)) {
            throw_usage_error(where, "'", geometry_->path, "': optimizer step or load while ", windows(),
                              " window(s) are open; reshard them first");
        }
    }
    /// Ends a write of every element of `resting` that was no update.
    void end_write() {
        updated_ = rank_->compute_stream().record();
        if (gathers_beside_ || coded()) { *step_ = written(*step_); }
    }
    /// Ends a load, which writes every element but for copies of what other ranks update.
    void end_load() {
        updated_ = rank_->compute_stream().record();
        *step_ = written(*step_);
    }
    /// Ends an update. `updated` is an event behind it in the compute stream, shared by all groups of a launch;
    /// `capture` is the graph capture that it is part of. `all`: whether it has begun the codes of all masters, and
    /// not only of those that it wrote.
    void end_update(const Event& updated, unsigned long long capture, bool all = true) {
        updated_ = updated;
        const GroupStep before = *step_;
        apply(Act::update);
        if (!all) { *step_ = begun_in_part(*step_, before); }
        update_captured_ = update_captured_ || (gathers() && capture != 0);
    }
    /// Returns an event behind the last update or write.
    const auto& updated() const noexcept { return updated_; }
    /// Returns the number of the graph capture that work goes to at the moment, 0 if none.
    unsigned long long capture() const noexcept { return rank_->compute_stream().capture(); }

  private:
    bool coded() const noexcept { return geometry_->sizes.codes.gathered; }
    /// Returns the number of element i's scale where codes share scales in blocks; else 0.
    std::size_t scale_number(std::size_t i) const noexcept {
        const std::size_t block = geometry_->sizes.codes.block;
        return block > 0 ? i / block : 0;
    }
    StoredElements gathered(void* at, std::size_t numel) const noexcept { return {at, numel, elements_->gather}; }

    /// Returns the elements of a full copy in memory, scales of blocks behind the codes included.
    std::size_t full_numel() const noexcept {
        const bool beside = gathers_beside_ && geometry_->sizes.codes.block > 0;
        return geometry_->buffer_numel + (beside ? geometry_->scale_bytes(Extent::full) : 0);
    }
    /// Returns the scales of all blocks.
    std::span<float> full_scales() const noexcept {
        if (!gathers_beside_) { return scales_.span(); }
        const std::size_t bytes = geometry_->scale_bytes(Extent::full);
        const StoredElements behind = gathered(full_, full_numel()).subspan(geometry_->buffer_numel, bytes);
        return {static_cast<float*>(behind.data()), bytes / sizeof(float)};
    }
    /// Makes codes of the masters, and takes the first row from `calls` if the ranks give each other the largest
    /// magnitudes before. `begun`: whether the last update has begun them.
    void make_codes(std::span<const CollectiveRow>& calls, bool begun, SourceLocation where) {
        joined_ = false;  // even where making them fails
        const auto stream = rank_->communication_stream();
        stream.wait(updated_);
        const auto codes = gather_source();
        elements_->begin_codes(stream, *geometry_, master(), codes, updated_scales(), begun, largest());
        if (geometry_->sizes.codes.block == 0) {
            if (!calls.empty() && calls.front().extent == Extent::scales) {
                gather(calls.front(), where);
                calls = calls.subspan(1);
            }
            elements_->finish_codes(stream, *geometry_, master(), codes, updated_scales(), largest());
        }
        gathered_ = stream.record();
    }
    /// Returns the largest magnitudes of each parameter on each rank, which lie behind the scales.
    std::span<float> largest() const noexcept { return scales_.span().subspan(geometry_->parameter_scales); }

    /// Returns whether the full copy must be gathered after an update; otherwise each rank updates all of it.
    bool gathers() const noexcept { return geometry_->table.gathers; }
    bool leases_full() const noexcept { return geometry_->table.leases_full; }
    Applied apply(Act act) {
        const Applied applied = apply_act(*step_, act, geometry_->table);
        *step_ = applied.next;
        return applied;
    }
    bool is_stale() const noexcept {
        const bool rests = gathers() && !leases_full() && step_->windows == 0;
        return due_gather(*step_, geometry_->table) || (rests && captured());
    }
    /// Returns whether the copy may be out of date although the host has gathered it: graphs that updates or gathers
    /// were captured in run later than the host's flags say, perhaps many times. So a capture gathers in its first
    /// window, and outside of captures nothing is known of a copy once an update has been captured.
    bool captured() const noexcept {
        const unsigned long long now = capture();
        return gathered_in_ != now || (now == 0 && update_captured_);
    }
    void gather(const CollectiveRow& row, SourceLocation where) {
        if (row.extent == Extent::scales) {
            const std::span<float> all = geometry_->sizes.codes.block == 0 ? largest() : full_scales();
            return gather(row, scales_.span(), all, where);
        }
        const Extent part = row.over == Over::replicas ? Extent::piece : Extent::shard;
        gather(row, elements(row.source, part), elements(row.target, row.extent), where);
    }
    /// Returns the elements of that extent in the buffer of a row.
    StoredElements elements(Role role, Extent extent) const noexcept {
        const IndexRange range = geometry_->range(extent);
        if (role == Role::gathered) { return full().subspan(range.begin, range.size()); }
        if (role == Role::secondary) { return secondary().subspan(range.begin - geometry_->own.begin, range.size()); }
        return resting().subspan(range.begin - resting_range().begin, range.size());
    }
    void gather(const CollectiveRow& row, const StoredElements& shard, const StoredElements& full,
                SourceLocation where) {
        joined_ = false;  // even of a gather that fails
        const Communicator& ranks = comms_[row.over];
        const Stream stream = rank_->communication_stream();
        const engine::CallSite site{where, subject_, statements_->in_call(row.over)};
        stream.wait(updated_);
        if (row.in_place()) {
            all_gather_in_place(ranks, full.type(), full, stream, site);
        } else {
            all_gather(ranks, full.type(), shard, full, stream, site);
        }
        gathered_ = stream.record();
    }
    void release() noexcept {
        if (leases_full() && full_ != nullptr) {
            const auto stream = rank_->compute_stream();
            if constexpr (checked) {
                // Otherwise no view has seen it, and its gather still writes it.
                if (joined_) { elements_->close(stream, gathered(full_, full_numel())); }
            }
            if (summoned_.size() > 0) {  // both streams have to be finished with it: its memory may be reused at once
                rank_->communication_stream().settle();
                stream.settle();
                summoned_ = {};
            } else {
                lease_.release(stream.record());
            }
            full_ = nullptr;
            *step_ = given_back(*step_);
        }
    }

    const engine::CallSubject* subject_;  // subject of the gathers
    void* full_ = nullptr;
    Buffer full_memory_;
    Buffer summoned_;
    Buffer shard_;
    Buffer secondary_;          // this rank's shard, where only a piece of it rests in `shard_`
    HostBuffer<float> scales_;  // of codes: of this rank's blocks, or of parameters
    Buffer master_;
    Buffer rest_;
    SlotLease lease_;
    Event updated_{};
    Event gathered_{};
    std::uint64_t generation_ = 0;
    SourceLocation opened_{};
    bool gathers_beside_ = false;  // gathers write to another buffer than the resting one
    bool held_ = false;            // by a schedule, see `hold`
    bool joined_ = false;          // the compute stream has waited for the last gather
    bool update_captured_ = false;
    unsigned long long gathered_in_ = 0;  // the capture of the last gather, 0 if none
};

}  // namespace shardkit::detail SHARDKIT_BUILD
