// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/global_norm.hpp>
#include <shardkit/optim/norm_memory.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/step/loss_scale_state.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace shardkit {

inline GlobalNorm::GlobalNorm(const detail::NormMemory& memory, const double* total, std::uint64_t gradients) noexcept
    : memory_(&memory), total_(total), taken_(memory.taken()), gradients_(gradients) {}

SHARDKIT_CORE_INLINE double GlobalNorm::value(SourceLocation where) const {
    return std::sqrt(read(where).sum_of_squares);
}

SHARDKIT_CORE_INLINE FoundInf GlobalNorm::found_inf(SourceLocation where) const {
    return read(where).nonfinite > 0 ? FoundInf::yes : FoundInf::no;
}

SHARDKIT_CORE_INLINE const double* GlobalNorm::data(SourceLocation where) const {
    if (memory_ == nullptr) {
        throw_usage_error(where,
                          "GlobalNorm: of a step that updated each group in its backward pass, when the gradients of "
                          "the others were not there; expected a step without step_in_backward where a norm is asked "
                          "for");
    }
    if (memory_->taken() - taken_ >= detail::norm_slots) {
        throw_usage_error(where, "GlobalNorm: ", memory_->taken() - taken_,
                          " more norms were taken before this one was used, expected fewer than ",
                          detail::norm_slots);
    }
    return total_;
}

inline detail::NormTotal GlobalNorm::read(SourceLocation where) const {
    double total[2];
    const double* const from = data(where);
    host::AnyKernels::copy_out(memory_->rank().compute_stream(), std::span<const double>(from, 2),
                               std::span<double>(total));
    return {total[0], total[1]};
}

namespace detail {

/// Adds this rank's part of each parameter's norms, of all groups that are trained, in order. `scratch`: as
/// NormMemory gives it; its first double becomes the scale.
inline std::span<const PartialNorms> partial_norms(const Reduced& reduced, NormMemory& memory, SourceLocation where) {
    const Model& groups = reduced.groups(where);
    std::size_t parameters = 0;
    for (Group& group : spi::groups(groups, where)) { parameters += group.geometry().parameters.size(); }
    const std::span<PartialNorms> norms = memory.partial_norms(parameters);
    const auto compute = detail::rank_of(groups, where).compute_stream();
    double* const scale = memory.scratch().data();
    host::AnyKernels::run_once(
        compute, BeginNorm{reduced.divisor_scale(), reduced.loss_scale(), scale,
                           std::span(reinterpret_cast<double*>(norms.data()), norms.size_bytes() / sizeof(double))});
    std::size_t first = 0;
    for (Group& group : spi::groups(groups, where)) {
        const std::size_t count = group.geometry().parameters.size();
        if (group.trainable() && !group.step().skipped()) {
            group.gradients().wait();
            group.add_norms(scale, norms.subspan(first, count), norms.data() + norms.size());
        }
        first += count;
    }
    return norms;
}

/// What follows a norm: the optimizer's step, at once, whose first launch does its last work too, or whatever the
/// user does, who may launch a graph that uses the same memory.
enum class NormFor : std::uint8_t { step, any };

inline GlobalNorm global_norm(const Reduced& reduced, NormKind kind, NormFor use, SourceLocation where) {
    const Model& groups = reduced.groups(where);
    ObservedGroup observed;  // of a group: all are led alike
    // One scratch and one world for the model: taken from whichever group comes first.
    auto& rank = detail::rank_of(groups, where);
    auto& memory = NormMemory::begin(rank);
    const auto compute = rank.compute_stream();
    const auto reduction = rank.reduction_stream();
    for (Group& group : spi::groups(groups, where)) {
        observed = group.observed();
        memory.add_updates(group.statements().updates());
    }
    observed.before(Act::norm, where);
    // The scale, and behind it the sum.
    const std::span<double> scratch = memory.scratch();
    const std::span<double> sums = scratch.subspan(1);
    const bool squares = kind == NormKind::two;
    if (squares) {
        host::AnyKernels::run_once(compute,
                                   BeginNorm{reduced.divisor_scale(), reduced.loss_scale(), scratch.data(), sums});
        for (Group& group : spi::groups(groups, where)) {
            if (!group.trainable()) { continue; }
            if (!group.step().skipped()) { group.gradients().wait(); }
            memory.list(group);
        }
        memory.add_to(compute, scratch.data(), sums.data());
    } else {
        const auto norms = partial_norms(reduced, memory, where);
        host::AnyKernels::run_once(compute, BeginInfinityNorm{norms, sums.data()});
    }
    observed.communicates(Act::norm);
    reduction.wait(compute.record());
    all_reduce_span(rank.world(), TreelessOp(squares ? ReduceOp::sum : ReduceOp::max), squares ? sums : sums.first(2),
                    reduction, {where, memory.subject(), memory.stated(reduced.stated().gradients_hash())});
    compute.wait(reduction.record());
    double* const total = memory.take_total();
    const FinishNorm finish{sums.data(), total, kind};
    if (use == NormFor::step) {
        memory.leave(finish);
    } else {
        host::AnyKernels::run_once(compute, finish);
    }
    observed.after(Act::norm, where);
    return {memory, total, reduced.identity()};
}
SHARDKIT_CORE_INLINE GlobalNorm global_norm(const Reduced& reduced, NormKind kind, SourceLocation where) {
    return global_norm(reduced, kind, NormFor::any, where);
}

}  // namespace detail

}  // namespace shardkit
