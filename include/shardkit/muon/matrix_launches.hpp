// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/muon/matrix_exchange.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/muon/matrix_placement.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/spi/placement.hpp>
#include <shardkit/spi/update_runner.hpp>
#include <shardkit/spi/updates.hpp>
#include <shardkit/verbs/broadcast.hpp>

namespace shardkit::detail {

/// Of elements that all are in the arithmetic type.
inline constexpr HostConversions in_arithmetic{};
/// Returns the first pass over some elements, which writes their directions.
template <std::floating_point A>
AnyUpdateWork direction_of(AnyUpdateWork of, std::span<const rules::UpdateRange> ranges, A* to) {
    of.conversions = &in_arithmetic;
    of.ranges = ranges;
    of.updated = of.gathers = element_type_of<A>;
    of.codes = {};
    of.rounds = false;
    of.master = to;
    of.gathered = nullptr;
    of.rest = nullptr;
    of.scales = nullptr;
    return of;
}

/// The steps of a MatrixRule's groups that are updated in arithmetic A. They are the acts on batches of
/// machine/batch_steps.hpp, in their order or in that of a schedule that leads.
/// Memory:  up to three slots of pieces and of whole matrices, the largest matrix of the rank once more, and what the
///          rule works in
template <std::floating_point A>
class MatrixLaunches final : public spi::UpdateRunner {
  public:
    MatrixLaunches(const AnyMatrixRule* rule, const AnyProducts<Stream>& products, const Matrices& matrices)
        : rule_(std::get<MatrixFunctions<A>>(*rule)), products_(products), matrices_(matrices) {}

    /// Order:   collective over the world
    /// @throws  std::invalid_argument as add_units, where ranks differ, and for rows that took other steps than the
    ///          rest
    void prepare(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        if (listed_.empty()) { return; }
        require_groups(rank, table, skip, "a rule of whole matrices", where, [&](const AnyUpdateWork& of) {
            return direction_of<A>(of, {}, nullptr).launches() && moved_by(of, {}, nullptr).launches();
        });
        place(rank, where);
        if (placement_.units().empty()) { return; }
        require_same_matrices(rank, placement_, where);
        batches_.clear();
        copies_.clear();
        acts_.clear();
        for_each_batch_act(placement_.batches(), [&](Act act, std::uint32_t batch) {
            acts_.push_back({act, batch});
        });
        steps_.reserve(placement_.batches());
        List<rules::UpdateRange> ranges;
        for (std::size_t b = 0; b < placement_.batches(); ++b) {
            Batch& batch = batches_.emplace_back(Batch{placement_.batch_of(b, rank.rank()), {}, {}});
            for (const MatrixPiece& piece : batch.of.pieces) { batch.ranges.push_back(add_ranges(piece, ranges)); }
        }
        std::vector<MatrixUpdate> begins;
        for (const MatrixUnit& unit : placement_.units()) {
            const TrainedGroup& in = listed_[unit.group];
            begins.push_back({in.group->update_of(unit.parameter), unit.block()});
            copies_.emplace_back(rank, placement_, unit);
        }
        ranges_ = {rank, std::span<const rules::UpdateRange>(ranges)};
        begins_ = {rank, std::span<const MatrixUpdate>(begins)};
        applies_ = EngineTable<AnyRuleUpdate>::zeroed(rank, begins.size());
        const MatrixMemory memory = matrix_memory(rule_.sizes, placement_, rank.rank());
        for (std::size_t slot = 0; slot < memory.batches; ++slot) {
            pieces_[slot] = rank.buffer<A>(memory.pieces);
            owned_[slot] = rank.buffer<A>(memory.owned);
        }
        matrix_ = rank.local_buffer<A>(memory.matrix);
        scratch_ = rank.local_buffer<A>(memory.scratch);
        keep(rank);
    }

    /// One step of the groups that were listed. Order: stream-ordered; collective over the world.
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        if (placement_.units().empty()) { return; }
        const Step step{rank, table.updates(), skip, where};
        const Stream compute = rank.compute_stream();
        const unsigned long long capture = listed_.front().state->parameters().capture();
        wait_for_gradients();
        rule_.begin(compute, begins_.size(), begins_.data(), step.updates, applies_.data());
        const ObservedGroup& observed = listed_.front().state->observed();
        auto* const observer = observed.in_step();
        const std::uint32_t first = observer == nullptr ? 0 : observer->add_batches(batches_.size());
        steps_.begin();
        for (const BatchAct& due : acts_) {
            const auto& units = batches_[due.batch].of.units;
            if (std::none_of(units.begin(), units.end(), [&](std::size_t u) { return is_taken(u); })) { continue; }
            const BatchAct made = observed.batch({due.act, first + due.batch}, where);
            const std::size_t slot = steps_.apply(made.act, made.batch).slot;
            make(step, made.act, batches_[made.batch - first], slot);
        }
        for (const TrainedGroup& each : listed_) {
            // Codes of parameters that are not this rule's are begun by others.
            if (each.taken) { each.state->parameters().end_update(compute.record(), capture, false); }
        }
    }

    const MatrixPlacement& placement() const noexcept { return placement_; }
    /// Appends what is kept of each parameter of the group, of experts for this rank's; the same on every rank but
    /// for who owns it.
    void list_own_shapes(const GroupGeometry& group, std::size_t rank, List<HeldMemory>& held) const override {
        for (std::size_t u = 0; u < kept_.size(); ++u) {
            const MatrixUnit& of = unit(u);
            const std::size_t of_each = rule_.sizes.kept(of.block());
            if (&placement_.holders(of).group() != &group || of_each == 0 || of.ep != group.ep_index) { continue; }
            const bool whole = of.tp == MatrixUnit::all;
            HeldMemory& state = held.emplace_back(HeldMemory{.role = Role::states});
            state.state = "kept";
            state.values = kept_[u].span();
            state.shape = {of.parameter,         of.blocks(), of_each,         whole ? 0 : of.tp,
                           whole ? 1 : group.tp, false,       of.owner == rank};
        }
    }
    /// The bytes of this rank's buffers.
    std::size_t bytes() const noexcept override {
        std::size_t numel = matrix_.size() + scratch_.size();
        for (std::size_t slot = 0; slot < slots; ++slot) { numel += pieces_[slot].size() + owned_[slot].size(); }
        for (const auto& kept : kept_) { numel += kept.size(); }
        return numel * sizeof(A);
    }

  private:
    static constexpr std::size_t slots = BatchSteps::slots;
    using UpdateRanges = std::span<const rules::UpdateRange>;

    struct Batch {
        MatrixBatch of;
        List<IndexRange> ranges;  // of each piece: the direction's, and behind it those that are moved
        Event done;               // of the last act on it
    };
    struct Step {
        Rank& rank;
        const AnyRuleUpdate* updates;
        const std::uint32_t* skip;
        SourceLocation where;
    };

    const MatrixUnit& unit(std::size_t u) const noexcept { return placement_.units()[u]; }
    bool is_taken(std::size_t u) const noexcept { return listed_[unit(u).group].taken; }

    void place(Rank& rank, SourceLocation where) {
        List<GroupHolders> holders;
        List<MatrixUnit> units;
        for (const TrainedGroup& each : listed_) {
            const GroupGeometry& geometry = each.state->geometry();
            add_units(
                geometry, holders.size(), rule_.sizes, matrices_,
                [&](std::size_t p) { return each.group->updates(p); }, units, where);
            holders.emplace_back(geometry, rank.grid());
        }
        placement_ = MatrixPlacement(rank.grid(), std::move(holders), std::move(units));
    }
    /// The update of a group's elements of a piece.
    AnyUpdateWork work(const Step& step, const MatrixPiece& piece) const {
        const TrainedGroup& in = listed_[unit(piece.unit).group];
        const GroupGeometry& group = in.state->geometry();
        const std::size_t parameter = group.parameters[unit(piece.unit).parameter].range.begin;
        return work_in_step(in, step.updates, step.skip)
            .part(parameter + piece.elements.begin - group.updated.begin, piece.elements.size());
    }
    IndexRange add_ranges(const MatrixPiece& piece, List<rules::UpdateRange>& ranges) const {
        const MatrixUnit& of = unit(piece.unit);
        const TrainedGroup& in = listed_[of.group];
        const GroupGeometry& group = in.state->geometry();
        const std::size_t first = ranges.size();
        ranges.push_back({0, piece.elements.size(), in.group->update_of(of.parameter), 0});
        const auto moved = static_cast<std::uint32_t>(piece.unit);
        if (!group.stochastic_rounding) {
            ranges.push_back({0, piece.elements.size(), moved, 0});
        } else {
            std::uint64_t before = 0;
            for (std::size_t p = 0; p < of.parameter; ++p) { before += group.parameters[p].shape.numel(); }
            group.parameters[of.parameter].part.for_each_run(
                piece.elements.begin, piece.elements.end, [&](std::size_t part, std::size_t whole, std::size_t run) {
                    const std::size_t begin = part - piece.elements.begin;
                    ranges.push_back({begin, begin + run, moved, before + whole});
                });
        }
        return {first, ranges.size()};
    }
    /// What the owner keeps of its matrices: made once, and never again.
    void keep(Rank& rank) {
        if (!kept_.empty()) { return; }
        for (const MatrixUnit& each : placement_.units()) {
            const std::size_t numel = each.owner == rank.rank() ? each.blocks() * rule_.sizes.kept(each.block()) : 0;
            kept_.push_back(rank.local_buffer<A>(numel));
        }
    }

    /// Each act on a batch waits for the one before it.
    void make(const Step& step, Act act, Batch& batch, std::size_t slot) {
        const bool travels = act == Act::to_owners || act == Act::from_owners;
        const Stream stream = travels ? step.rank.communication_stream() : step.rank.compute_stream();
        if (act != Act::direct) { stream.wait(batch.done); }
        switch (act) {
            case Act::direct:
                give_each(step, batch, slot, [&](const AnyUpdateWork& of, UpdateRanges ranges, A* to) {
                    return direction_of(of, ranges.first(1), to);
                });
                break;
            case Act::to_owners:
                exchange_pieces(step.rank, batch.of.sent, pieces_[slot].span(), batch.of.received,
                                owned_[slot].span(), step.where);
                break;
            case Act::transform:
                transform(step, batch, slot);
                break;
            case Act::from_owners:
                from_owners(step, batch, slot);
                break;
            default:
                give_each(step, batch, slot, [&](const AnyUpdateWork& of, UpdateRanges ranges, const A* along) {
                    return moved_by(of, ranges.subspan(1), along);
                });
        }
        batch.done = stream.record();
    }
    /// Gives the compute stream update(that of a piece's elements, its ranges, where the piece lies) for each piece.
    template <class Update>
    void give_each(const Step& step, const Batch& batch, std::size_t slot, const Update& update) {
        for (std::size_t i = 0; i < batch.of.pieces.size(); ++i) {
            const MatrixPiece& piece = batch.of.pieces[i];
            if (!is_taken(piece.unit)) { continue; }
            const IndexRange its = batch.ranges[i];
            update(work(step, piece), UpdateRanges(ranges_.span()).subspan(its.begin, its.size()),
                   pieces_[slot].data() + piece.offset)
                .give(step.rank.compute_stream());
        }
    }
    void transform(const Step& step, const Batch& batch, std::size_t slot) {
        const Stream compute = step.rank.compute_stream();
        for (const std::size_t u : batch.of.units) {
            const MatrixUnit& of = unit(u);
            if (of.owner != step.rank.rank() || !is_taken(u)) { continue; }
            move_pieces<false>(compute, batch.of, u, owned_[slot].span());
            const std::size_t numel = of.block().numel();
            const std::size_t kept = rule_.sizes.kept(of.block());
            const AnyRuleUpdate* const update = step.updates + listed_[of.group].group->update_of(of.parameter);
            for (std::size_t block = 0; block < of.blocks(); ++block) {
                rule_.transform(compute, products_,
                                {of.block(), matrix_.span().subspan(block * numel, numel), scratch_.span(),
                                 kept_[u].span().subspan(block * kept, kept), update, step.skip});
            }
            move_pieces<true>(compute, batch.of, u, owned_[slot].span());
        }
    }
    void from_owners(const Step& step, const Batch& batch, std::size_t slot) {
        const Stream communication = step.rank.communication_stream();
        exchange_pieces(step.rank, batch.of.received, owned_[slot].span(), batch.of.sent, pieces_[slot].span(),
                        step.where);
        // In the order of units, which all ranks share; a rank's pieces begin with what it sends itself.
        for (const std::size_t u : batch.of.units) {
            const auto& pieces = batch.of.pieces;
            const auto piece = std::find_if(pieces.begin(), pieces.end(), [u](const auto& p) { return p.unit == u; });
            const MatrixCopies& copies = copies_[u];
            if (!copies.ranks || !is_taken(u) || piece == pieces.end()) { continue; }
            broadcast(*copies.ranks, pieces_[slot].span().subspan(piece->offset, piece->elements.size()), copies.root,
                      communication, step.where);
        }
    }
    template <bool Back>
    void move_pieces(const Stream& stream, const MatrixBatch& batch, std::size_t u, std::span<A> slot) {
        for (const MatrixPiece& piece : batch.owned) {
            if (piece.unit != u) { continue; }
            const MovePiece<A, Back> move(slot.data() + piece.offset, matrix_.data(),
                                          placement_.part(unit(u), piece.rank), piece.elements);
            run_each(stream, move.vectors(), move);
        }
    }
    /// Returns the second pass over some elements, along what has become of their directions.
    AnyUpdateWork moved_by(AnyUpdateWork of, std::span<const rules::UpdateRange> ranges, const A* along) const {
        of.rule = rule_.apply;
        of.ranges = ranges;
        of.updates = applies_.data();
        of.state_count = 0;
        return of.along(along);
    }

    MatrixFunctions<A> rule_;
    AnyProducts<Stream> products_;
    Matrices matrices_;
    MatrixPlacement placement_;
    std::vector<Batch> batches_;
    std::vector<BatchAct> acts_;
    BatchSteps steps_;
    std::vector<MatrixCopies> copies_;  // of each unit
    std::array<HostBuffer<A>, slots> pieces_{};
    std::array<HostBuffer<A>, slots> owned_{};
    HostBuffer<A> matrix_{};
    HostBuffer<A> scratch_{};
    std::vector<HostBuffer<A>> kept_;  // of each unit
    // Their ends wait for the kernels that use what is above.
    EngineTable<rules::UpdateRange> ranges_;
    EngineTable<MatrixUpdate> begins_;
    EngineTable<AnyRuleUpdate> applies_;
};

}  // namespace shardkit::detail
