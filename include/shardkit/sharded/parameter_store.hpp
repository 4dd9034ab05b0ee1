// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// A stream whose work can be captured in a graph; `capture()` names the capture that it is part of, 0: none.
template <class S>
concept Captures = requires(const S stream) {
    { stream.capture() } -> std::same_as<unsigned long long>;
};

/// A group's parameters on one rank: full copy, resting shard, master shard, and whether the full copy is stale.
/// `gather_source` is what the optimizer writes and what the next all-gather sends; nothing is copied between.
template <class Engine, class Precision>
class ParameterStore {
  public:
    using Gather = typename Precision::Gather;
    using Master = typename Precision::Master;
    using Communicator = typename Engine::Communicator;
    using Kernels = typename Engine::Kernels;
    template <class T>
    using Buffer = typename Engine::template Buffer<T>;

    /// `adopted`: the user's own full buffer, or empty for one of ours.
    ParameterStore(Context<Engine>& context, const GroupGeometry& geometry, Communicator shards,
                   std::span<Gather> adopted)
        : context_(&context), geometry_(&geometry), shards_(shards), full_(adopted.data()) {
        if (leases_full()) {
            lease_ = group_lease(context, geometry.path, detail::SlotPurpose::gather,
                                 geometry.buffer_numel * sizeof(Gather));
        } else if (adopted.empty()) {
            full_memory_ = group_buffer<Gather>(context, geometry.path, "full parameters", geometry.buffer_numel);
            full_ = full_memory_.data();
        }
        if (sharded_at_rest()) {
            shard_ = group_buffer<Gather>(context, geometry.path, "parameter shard", geometry.shard_numel);
        }
        if constexpr (Precision::has_master) {
            if (geometry.trainable) {
                master_ = group_buffer<Master>(context, geometry.path, "master weights", geometry.updated.size());
                if (!adopted.empty()) {
                    Kernels::convert(context.compute_stream(), std::span<const Gather>(gather_source()),
                                     master_.span());
                }
            }
        }
        stale_ = sharded_at_rest();
    }

    /// Opens a window: leases a full buffer and gathers into it where the full copy is stale.
    void open(SourceLocation where) {
        if (leases_full()) {
            context_->communication_stream().wait(lease_.acquire(geometry_->path, where));
            full_ = static_cast<Gather*>(lease_.data());
        }
        if (is_stale()) {
            try {
                gather(where);
            } catch (...) {
                if (windows_ == 0) { release(); }
                throw;
            }
            stale_ = false;
            gathered_in_ = capture();
        }
        ++windows_;
    }
    /// Later work on the compute stream sees the gathered values.
    void wait() { context_->compute_stream().wait(gathered_); }
    /// Closes a window; local work only.
    void close() noexcept {
        if (--windows_ > 0) { return; }
        ++generation_;
        // The next window's gather may then come without an update before it.
        if (update_captured_) { updated_ = context_->compute_stream().record(); }
        release();
    }

    std::span<const Gather> full() const noexcept { return {full_, geometry_->buffer_numel}; }
    const std::uint64_t& generation() const noexcept { return generation_; }

    /// The elements `geometry.updated` of the gathered type: what an update writes.
    std::span<Gather> gather_source() noexcept {
        if (sharded_at_rest()) { return shard_.span(); }
        return std::span<Gather>(full_, geometry_->buffer_numel)
            .subspan(geometry_->updated.begin, geometry_->updated.size());
    }
    /// The elements `geometry.updated` of the master type; the same memory as gather_source without a master.
    std::span<Master> master() noexcept {
        if constexpr (Precision::has_master) {
            return master_.span();
        } else {
            return gather_source();
        }
    }
    /// What lies in this rank's memory between steps: `resting_range` of the flat buffer.
    std::span<Gather> resting() noexcept {
        if (sharded_at_rest()) { return shard_.span(); }
        return {full_, geometry_->buffer_numel};
    }
    IndexRange resting_range() const noexcept {
        return sharded_at_rest() ? geometry_->own : IndexRange{0, geometry_->buffer_numel};
    }

    /// @throws UsageError when a window is open: it would show half of the update
    void begin_update(SourceLocation where) const {
        if (windows_ > 0) {
            throw_usage_error(where, "'", geometry_->path, "': optimizer step or load while ", windows_,
                              " window(s) are open; reshard them first");
        }
    }
    /// After every element of `resting` was written by other means than an update.
    void end_write() {
        updated_ = context_->compute_stream().record();
        if (sharded_at_rest()) { stale_ = true; }
    }
    void end_update() {
        updated_ = context_->compute_stream().record();
        if (stale_after_update()) {
            stale_ = true;
            update_captured_ = update_captured_ || capture() != 0;
        }
    }

  private:
    bool sharded_at_rest() const noexcept { return geometry_->policy.parameters == Placement::sharded; }
    bool leases_full() const noexcept {
        return sharded_at_rest() && geometry_->policy.release == Release::at_reshard;
    }
    /// A sharded optimizer renews one shard only; the rest of a full copy is then out of date.
    bool stale_after_update() const noexcept { return geometry_->policy.optimizer == Placement::sharded; }

    /// The graph capture that work is given to at the moment, 0: none.
    unsigned long long capture() const noexcept {
        if constexpr (Captures<typename Engine::Stream>) {
            return context_->compute_stream().capture();
        } else {
            return 0;
        }
    }
    /// A graph is launched when the host's flags are long about something else: one that is captured gathers in its
    /// first window, and outside of captures nothing is known of a copy after an update was captured.
    bool is_stale() const noexcept {
        if (leases_full() || !(sharded_at_rest() || stale_after_update())) { return stale_; }
        if (stale_ || windows_ > 0) { return stale_; }
        const auto now = capture();
        return gathered_in_ != now || (now == 0 && update_captured_);
    }
    void gather(SourceLocation where) {
        const auto stream = context_->communication_stream();
        stream.wait(updated_);
        const std::span<Gather> full(full_, geometry_->buffer_numel);
        if (sharded_at_rest()) {
            all_gather(shards_, std::span<const Gather>(shard_.span()), full, stream, where);
        } else {
            all_gather_in_place(shards_, full, stream, where);
        }
        gathered_ = stream.record();
    }
    void release() noexcept {
        if (leases_full()) {
            const auto stream = context_->compute_stream();
            if constexpr (checked) {
                constexpr auto nan = std::numeric_limits<Arithmetic<Gather>>::quiet_NaN();
                Kernels::fill(stream, std::span<Gather>(full_, geometry_->buffer_numel), static_cast<Gather>(nan));
            }
            lease_.release(stream.record());
            full_ = nullptr;
            stale_ = true;
        }
    }

    using Event = typename Engine::Stream::Event;

    Context<Engine>* context_;
    const GroupGeometry* geometry_;
    Communicator shards_;
    Gather* full_ = nullptr;
    Buffer<Gather> full_memory_;
    Buffer<Gather> shard_;
    Buffer<Master> master_;
    detail::SlotLease<Engine> lease_;
    Event updated_{};
    Event gathered_{};
    std::uint64_t generation_ = 0;
    std::size_t windows_ = 0;
    bool stale_ = false;
    unsigned long long gathered_in_ = 0;  // the capture of the last gather, 0: none
    bool update_captured_ = false;
};

}  // namespace shardkit::inline SHARDKIT_BUILD
