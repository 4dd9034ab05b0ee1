// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit {

/// A group's gradients on one rank, from the full buffer that a backward pass adds to, to the reduced values.
/// Reductions are the ones that the placement table gives for the policy; the divisor is applied elsewhere.
template <class Engine, class Precision>
class GradientStore {
  public:
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Kernels = typename Engine::Kernels;
    template <class T>
    using Buffer = typename Engine::template Buffer<T>;

    /// `adopted`: the user's own full gradient buffer, or empty for one of ours.
    GradientStore(Context<Engine>& context, const GroupGeometry& geometry, GroupCommunicators<Engine> communicators,
                  std::span<Gradient> adopted)
        : context_(&context), geometry_(&geometry), comms_(communicators), full_(adopted.data()) {
        if (!geometry.trainable) { return; }
        if (reduces_each_microbatch()) {
            lease_ = group_lease(context, geometry.path, detail::SlotPurpose::gradient,
                                 geometry.buffer_numel * sizeof(Gradient));
        } else if (adopted.empty()) {
            full_memory_ = group_buffer<Gradient>(context, geometry.path, "full gradients", geometry.buffer_numel);
            full_ = full_memory_.data();
        }
        if (reduces_each_microbatch() || !Precision::reduces_in_place) {
            reduced_memory_ = group_buffer<Reduction>(context, geometry.path, "reduced gradients",
                                                      keeps_shard() ? geometry.shard_numel : geometry.buffer_numel);
        }
    }

    /// A full gradient buffer for one microbatch, zeroed unless earlier microbatches are kept in it.
    std::span<Gradient> open(SourceLocation where) {
        const auto stream = context_->compute_stream();
        if (reduces_each_microbatch()) {
            stream.wait(lease_.acquire(geometry_->path, where));
            full_ = static_cast<Gradient*>(lease_.data());
        } else {
            stream.wait(reduced_ready_);  // of a step that nobody waited for
        }
        if (reduces_each_microbatch() || microbatches_ == 0) { Kernels::fill(stream, full(), Gradient{}); }
        return full();
    }
    /// Gives the buffer of a microbatch back without adding it.
    void discard() noexcept {
        if (reduces_each_microbatch()) { lease_.release(context_->compute_stream().record()); }
    }
    /// Takes one microbatch in; reduces it where the policy reduces every microbatch.
    void add(SourceLocation where) {
        written_ = context_->compute_stream().record();
        if (reduces_each_microbatch()) {
            const auto stream = context_->communication_stream();
            stream.wait(written_);
            reduce_microbatch(stream, where);
            lease_.release(stream.record());
        }
        ++microbatches_;
    }
    /// The reductions that are left once every microbatch is in. Collective over the data ranks, then over tp.
    void finish(SourceLocation where) {
        const auto stream = context_->communication_stream();
        stream.wait(written_);
        if (!reduces_each_microbatch()) {
            if (transition(Placement::partial, geometry_->policy.gradients) == Transition::all_reduce) {
                if constexpr (Precision::reduces_in_place) {
                    all_reduce_in_place(comms_.data, ReduceOp::sum, full(), stream, where);
                } else {
                    all_reduce(comms_.data, ReduceOp::sum, constant(full()), reduced(), stream, where);
                }
            } else if constexpr (Precision::reduces_in_place) {
                reduce_scatter_in_place(comms_.shards, ReduceOp::sum, full(), stream, where);
            } else {
                reduce_scatter(comms_.shards, ReduceOp::sum, constant(full()), reduced(), stream, where);
            }
        }
        if (keeps_shard()) { all_reduce_in_place(comms_.replicas, ReduceOp::sum, reduced(), stream, where); }
        const IndexRange held = reduced_range();
        const IndexRange partial = relative_to(intersect(held, geometry_->tp_sum), held.begin);
        if (!partial.empty()) {  // or empty on every rank of tp: they hold the same range
            all_reduce_in_place(comms_.tp, ReduceOp::sum, reduced().subspan(partial.begin, partial.size()), stream,
                                where);
        }
        reduced_ready_ = stream.record();
    }
    /// Later work on the compute stream sees the reduced gradients.
    void wait() { context_->compute_stream().wait(reduced_ready_); }

    /// The reduced gradients on this rank (sums, not yet divided): `reduced_range` of the flat buffer.
    std::span<Reduction> reduced() noexcept {
        if constexpr (Precision::reduces_in_place) {
            if (!reduces_each_microbatch()) { return full().subspan(reduced_range().begin, reduced_range().size()); }
        }
        return reduced_memory_.span();
    }
    IndexRange reduced_range() const noexcept {
        return keeps_shard() ? geometry_->own : IndexRange{0, geometry_->buffer_numel};
    }

    /// The full buffer of the microbatch that is open (or, kept, of the step).
    std::span<Gradient> full() const noexcept { return {full_, geometry_->buffer_numel}; }

    std::size_t microbatches() const noexcept { return microbatches_; }
    /// Forgets an abandoned step: a reduction that failed has kept its buffers.
    void restart() noexcept {
        microbatches_ = 0;
        if (reduces_each_microbatch()) {
            const auto stream = context_->communication_stream();
            lease_.release(stream.record());
            addend_.release(stream.record());
        }
    }

  private:
    bool reduces_each_microbatch() const noexcept { return geometry_->policy.accumulate == Accumulate::reduced; }
    bool keeps_shard() const noexcept { return geometry_->policy.gradients == Placement::sharded; }

    template <class T>
    static std::span<const T> constant(std::span<T> values) noexcept {
        return values;
    }

    void reduce_microbatch(typename Engine::Stream stream, SourceLocation where) {
        if (microbatches_ == 0) {
            reduce_scatter(comms_.shards, ReduceOp::sum, constant(full()), reduced(), stream, where);
            return;
        }
        if constexpr (Precision::reduces_in_place) {
            reduce_scatter_in_place(comms_.shards, ReduceOp::sum, full(), stream, where);
            const auto own = full().subspan(geometry_->own.begin, geometry_->own.size());
            Kernels::accumulate(stream, constant(own), reduced());
        } else {
            if (!addend_joined_) {
                addend_ = group_lease(*context_, geometry_->path, detail::SlotPurpose::reduce,
                                      geometry_->shard_numel * sizeof(Reduction));
                addend_joined_ = true;
            }
            addend_.acquire(geometry_->path, where);  // last used in this stream
            const std::span<Reduction> addend(static_cast<Reduction*>(addend_.data()), geometry_->shard_numel);
            reduce_scatter(comms_.shards, ReduceOp::sum, constant(full()), addend, stream, where);
            Kernels::accumulate(stream, constant(addend), reduced());
            addend_.release(stream.record());
        }
    }

    using Event = typename Engine::Stream::Event;

    Context<Engine>* context_;
    const GroupGeometry* geometry_;
    GroupCommunicators<Engine> comms_;
    Gradient* full_ = nullptr;
    Buffer<Gradient> full_memory_;
    Buffer<Reduction> reduced_memory_;
    detail::SlotLease<Engine> lease_;
    detail::SlotLease<Engine> addend_;
    Event written_{};
    Event reduced_ready_{};
    std::size_t microbatches_ = 0;
    bool addend_joined_ = false;
};

}  // namespace shardkit
