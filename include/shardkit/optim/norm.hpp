// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/norm_buffer_sizes.hpp>
#include <shardkit/optim/norm_sum.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/per_tensor_norms.hpp>
#include <shardkit/step/loss_scale_state.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit {

namespace detail {

/// Before a norm's sums: *scale becomes what every gradient is multiplied by, the sums zero. Run once, in a stream's
/// order; all pointers lead into the engine's memory.
struct BeginNorm {
    double divisor_scale;
    const LossScaleState* loss_scale;  ///< null without one
    double* scale;
    std::span<double> sums;

    constexpr void operator()() const {
        *scale = detail::unscale(divisor_scale, loss_scale);
        for (double& sum : sums) { sum = 0; }
    }
};

/// After the sums of elements that other ranks count: keeps of them what is not finite. Run once; engine memory.
struct KeepNonfinite {
    double* sums;

    constexpr void operator()() const { NormSum::keep_nonfinite(sums); }
};

/// After the sums were added over all ranks: rounds them, or squares the largest magnitude. Run once, in a stream's
/// order, as a work of its own or the first of a step's; engine memory.
struct FinishNorm {
    const double* sum = nullptr;  ///< a NormSum that travelled, or the two of BeginInfinityNorm; null: nothing to do
    double* total = nullptr;      ///< two: sum of squares and non-finite count
    NormKind kind = NormKind::two;

    static constexpr std::size_t most_reads = NormSum::numbers;
    /// Returns what it reads, so that as many threads can load it.
    constexpr std::span<const double> reads() const noexcept {
        return {sum, sum == nullptr ? 0 : kind == NormKind::two ? most_reads : 2};
    }
    constexpr void operator()() const { (*this)(sum); }
    constexpr void operator()(const double* read) const {
        if (sum == nullptr) { return; }
        if (kind == NormKind::two) {
            const NormTotal rounded = NormSum(read).total();
            total[0] = rounded.sum_of_squares;
            total[1] = rounded.nonfinite;
        } else {
            total[0] = read[1] > 0 ? std::numeric_limits<double>::quiet_NaN() : read[0] * read[0];
            total[1] = read[1] > 0 || !is_finite(read[0]) ? 1 : 0;
        }
    }
};
static_assert(NormNumbers::sent == NormSum::numbers);

/// Of an infinity norm, this rank's largest magnitude and whether there is a NaN. Run once.
struct BeginInfinityNorm {
    std::span<const PartialNorms> norms;
    double* largest;  ///< two: the magnitude, and 1 for a NaN

    constexpr void operator()() const {
        PartialNorms all;
        for (const PartialNorms& each : norms) { all.add(each); }
        largest[0] = all.largest;
        largest[1] = all.nan;
    }
};

/// Holds a rank's memory for the norms of all its models: what sums are added in, and the totals, which take
/// turns.
template <class Engine>
class NormMemory {
  public:
    explicit NormMemory(Context<Engine>& context);
    /// Returns a rank's memory, where a norm begins.
    static NormMemory& begin(Context<Engine>& context);
    /// Takes a group into the norm that was begun last.
    void list(Group<Engine>& group) {
        const auto add = group.elements().norm_partial;
        const auto adds = [add](const auto& each) { return each->adds_by(add); };
        if (std::none_of(tables_.begin(), tables_.end(), adds)) {
            tables_.push_back(Owned<NormTables<Engine>>(new NormTables<Engine>(*context_, add)));
        }
        NormTables<Engine>& its = **std::find_if(tables_.begin(), tables_.end(), adds);
        its.list(begun_, group.in_norm(), !group.step().skipped());
        if (std::find(lists_.begin(), lists_.end(), &its) == lists_.end()) { lists_.push_back(&its); }
    }
    /// Returns the lists of the groups that were taken in, one for each type of reduced gradients.
    std::span<NormTables<Engine>* const> lists() const noexcept { return lists_.span(); }

    /// Returns what the norms' all-reduces are for.
    const engine::CallSubject* subject() const noexcept { return subject_; }

    /// Adds what one more group's updates were to what the norm's call states.
    void add_updates(StatementHash updates) { updates_.push_back(updates); }
    /// Returns what the norm's call states: the updates of all groups, and its gradients.
    StatementHash stated(StatementHash gradients) {
        if (context_->world().size() == 1) { return 0; }
        StatementHash hash = 1;
        for (const StatementHash updates : updates_) { hash = statement_hash(hash, updates); }
        hash = statement_hash(hash, gradients);
        if (StatementBook* const book = book_of(context_->world())) { book->note_norm(hash, gradients, updates_); }
        return hash;
    }

    /// Returns where a norm's total lies until `norm_slots` more were taken: two doubles in the engine's memory.
    double* take_total() {
        if (totals_.size() == 0) { totals_ = context_->template buffer<double>(NormNumbers::totals); }
        return totals_.data() + 2 * (taken_++ % norm_slots);
    }
    std::uint64_t taken() const noexcept { return taken_; }

    /// Leaves the last work of the norm to the step that follows at once.
    void leave(const FinishNorm& finish) noexcept { left_ = finish; }
    /// Returns what was left of the norm with that total, for the caller to do; nothing where nothing was.
    FinishNorm take_left(const double* total) noexcept {
        return left_.total == total ? std::exchange(left_, FinishNorm{}) : FinishNorm{};
    }

    /// Returns room for what norms of so many parameters are made of, and for the lanes behind them.
    std::span<PartialNorms> partial_norms(std::size_t parameters) {
        const std::size_t count = parameters + AddPartialNorms<float>::most_lanes;
        constexpr std::size_t each = sizeof(PartialNorms) / sizeof(double);
        if (partial_norms_.size() < count * each) {
            context_->compute_stream().synchronize();
            partial_norms_ = context_->template buffer<double>(count * each);
        }
        return {reinterpret_cast<PartialNorms*>(partial_norms_.data()), parameters};
    }

    /// Returns what a norm's sum is added in, kept between steps: the scale and NormNumbers::sent numbers.
    std::span<double> scratch() {
        if (scratch_.size() == 0) { scratch_ = context_->template buffer<double>(NormNumbers::scratch); }
        return scratch_.span();
    }

  private:
    Context<Engine>* context_;
    const engine::CallSubject* subject_;
    typename Engine::template Buffer<double> scratch_;
    typename Engine::template Buffer<double> totals_;
    typename Engine::template Buffer<double> partial_norms_;
    std::uint64_t taken_ = 0;
    std::vector<StatementHash> updates_;  // of each group
    List<Owned<NormTables<Engine>>> tables_;
    List<NormTables<Engine>*> lists_;  // of the norm that was begun last
    std::uint64_t begun_ = 0;
    FinishNorm left_;
};

// Out of the class, so that `extern template` keeps them out of a file.

template <class Engine>
NormMemory<Engine>::NormMemory(Context<Engine>& context)
    : context_(&context), subject_(subject_of(context.world(), "the global norm")) {}

template <class Engine>
NormMemory<Engine>& NormMemory<Engine>::begin(Context<Engine>& context) {
    NormMemory& memory = context.template kept<NormMemory>();
    memory.left_ = {};
    memory.updates_.clear();
    memory.lists_.clear();
    ++memory.begun_;
    return memory;
}

}  // namespace detail

/// The norm of a model's reduced gradients, the same number on every rank: a scalar in the engine's memory, which a
/// clip coefficient refers to and `value` reads. It stays there while fewer than norm_slots later ones are
/// taken.
template <class Engine = DefaultEngine>
class GlobalNorm {
  public:
    /// The norm; waits for the compute stream, on an asynchronous engine the only synchronisation. As in PyTorch
    /// infinite after an infinite element and NaN after a NaN.
    /// @throws UsageError when so many norms were taken since that this one's memory was used again
    double value(SourceLocation where = SourceLocation::current()) const {
        return std::sqrt(read(where).sum_of_squares);
    }
    /// Whether any gradient element of any rank is infinite or NaN; waits likewise.
    FoundInf found_inf(SourceLocation where = SourceLocation::current()) const {
        return shardkit::detail::found_inf(read(where));
    }

    /// Sum of squares and non-finite count in the engine's memory, for kernels in the compute stream's order.
    /// @throws UsageError as value
    const double* data(SourceLocation where = SourceLocation::current()) const;
    /// Reduced::identity of the gradients that it is the norm of.
    std::uint64_t gradients() const noexcept { return gradients_; }

  private:
    friend detail::Access;
    /// `total`: the slot that was taken last.
    GlobalNorm(const Context<Engine>& context, const detail::NormMemory<Engine>& memory, const double* total,
               std::uint64_t gradients) noexcept
        : context_(&context), memory_(&memory), total_(total), taken_(memory.taken()), gradients_(gradients) {}

    /// Of a step that takes none.
    explicit GlobalNorm(const Context<Engine>& context) noexcept : context_(&context) {}

    detail::NormTotal read(SourceLocation where) const;

    const Context<Engine>* context_;
    const detail::NormMemory<Engine>* memory_ = nullptr;  // null: none was taken
    const double* total_ = nullptr;
    std::uint64_t taken_ = 0;
    std::uint64_t gradients_ = 0;
};

template <class Engine>
const double* GlobalNorm<Engine>::data(SourceLocation where) const {
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

template <class Engine>
detail::NormTotal GlobalNorm<Engine>::read(SourceLocation where) const {
    double total[2];
    Engine::Kernels::copy_out(context_->compute_stream(), std::span<const double>(data(where), 2),
                              std::span<double>(total));
    return {total[0], total[1]};
}

namespace detail {

/// Adds this rank's part of each parameter's norms, of all groups that are trained, in order. `scratch`: as
/// NormMemory gives it; its first double becomes the scale.
template <class Engine>
std::span<const PartialNorms> partial_norms(const Reduced<Engine>& reduced, NormMemory<Engine>& memory,
                                            SourceLocation where) {
    const Groups<Engine>& groups = reduced.groups(where);
    std::size_t parameters = 0;
    for (Group<Engine>& group : Access::each(groups, where)) { parameters += group.geometry().parameters.size(); }
    const std::span<PartialNorms> norms = memory.partial_norms(parameters);
    const auto compute = groups.context(where).compute_stream();
    double* const scale = memory.scratch().data();
    Engine::Kernels::run_once(
        compute, BeginNorm{reduced.divisor_scale(), Access::loss_scale(reduced), scale,
                           std::span(reinterpret_cast<double*>(norms.data()), norms.size_bytes() / sizeof(double))});
    std::size_t first = 0;
    for (Group<Engine>& group : Access::each(groups, where)) {
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

template <class Engine>
GlobalNorm<Engine> global_norm(const Reduced<Engine>& reduced, NormKind kind, NormFor use, SourceLocation where) {
    const Groups<Engine>& groups = reduced.groups(where);
    DirectedGroup directed;  // of a group: all are led alike
    // One scratch and one world for the model: taken from whichever group comes first.
    auto& context = groups.context(where);
    auto& memory = NormMemory<Engine>::begin(context);
    const auto compute = context.compute_stream();
    const auto reduction = context.reduction_stream();
    for (Group<Engine>& group : Access::each(groups, where)) {
        directed = group.directed();
        memory.add_updates(group.statements().updates());
    }
    directed.before(Act::norm, where);
    // The scale, and behind it the sum.
    const std::span<double> scratch = memory.scratch();
    const std::span<double> sums = scratch.subspan(1);
    const bool squares = kind == NormKind::two;
    if (squares) {
        Engine::Kernels::run_once(
            compute, BeginNorm{reduced.divisor_scale(), Access::loss_scale(reduced), scratch.data(), sums});
        for (Group<Engine>& group : Access::each(groups, where)) {
            if (!group.trainable()) { continue; }
            if (!group.step().skipped()) { group.gradients().wait(); }
            memory.list(group);
        }
        bool copies = false;
        for (NormTables<Engine>* const list : memory.lists()) {
            copies = list->add_copied_to(compute, scratch.data(), sums.data()) || copies;
        }
        if (copies) { Engine::Kernels::run_once(compute, KeepNonfinite{sums.data()}); }
        for (NormTables<Engine>* const list : memory.lists()) { list->add_to(compute, scratch.data(), sums.data()); }
    } else {
        const auto norms = partial_norms(reduced, memory, where);
        Engine::Kernels::run_once(compute, BeginInfinityNorm{norms, sums.data()});
    }
    directed.communicates(Act::norm);
    reduction.wait(compute.record());
    all_reduce_span(context.world(), TreelessOp(squares ? ReduceOp::sum : ReduceOp::max),
                    squares ? sums : sums.first(2), reduction,
                    {where, memory.subject(), memory.stated(Access::stated(reduced).gradients_hash())});
    compute.wait(reduction.record());
    double* const total = memory.take_total();
    const FinishNorm finish{sums.data(), total, kind};
    if (use == NormFor::step) {
        memory.leave(finish);
    } else {
        Engine::Kernels::run_once(compute, finish);
    }
    directed.after(Act::norm, where);
    return Access::make<GlobalNorm<Engine>>(context, memory, total, reduced.identity());
}

}  // namespace detail

/// sqrt of the sum of squares over every distinct trainable element of every group, after divisor and loss
/// scale. Squares are added within packs of 128 bytes of a parameter, and the packs' sums exactly (ExactSum). So
/// equal gradients have the same norm, to the last bit, under every policy and on any number of ranks.
/// With NormKind::infinity it is the largest magnitude instead, to clip by; its square lies in memory.
/// Order:   collective over the world: one all-reduce of 70 doubles, or of two.
/// Source:  torch.nn.utils.clip_grad_norm_
template <class X>
auto global_norm(const X& reduced, NormKind kind, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = detail::IsReduced<X>::value;
    static_assert(is_reduced,
                  "global_norm takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return detail::global_norm(reduced, kind, detail::NormFor::any, where); }
}
template <class X>
auto global_norm(const X& reduced, SourceLocation where = SourceLocation::current()) {
    return global_norm(reduced, NormKind::two, where);
}

}  // namespace shardkit
