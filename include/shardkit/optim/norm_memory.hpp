// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/optim/norm_works.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/element_table.hpp>
#include <shardkit/sharded/group.hpp>

// What a rank keeps for the norms of its models: which elements they read, and where they are added.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Which elements of some groups a norm reads on this rank, as a table in the engine's memory. Their gradients have
/// one type.
class NormTable {
  public:
    enum class Part : std::uint8_t {
        counted,  ///< the elements that this rank counts
        copied    ///< those that another rank counts
    };

    NormTable(Rank& rank, const List<Group*>& groups) {
        List<StoredElements> runs;
        for (const Part part : {Part::counted, Part::copied}) {
            for (Group* const group : groups) {
                const auto& ranges = part == Part::counted ? group->counted_segments() : group->copied_segments();
                pieces_of_.push_back({runs.size(), runs.size() + ranges.size()});
                for (const IndexRange range : ranges) {
                    runs.push_back(group->gradients().reduced().subspan(range.begin, range.size()));
                }
            }
        }
        for (Group* const group : groups) { groups_.push_back({group->identity(), group->life()}); }
        const List<NormRun> pieces = list_norm_pieces(runs);
        for (const NormRun& piece : pieces) { positions_.push_back(IndexRange{piece.begin, piece.end}); }
        if (!pieces.empty()) { pieces_ = {rank, pieces.data(), pieces.size()}; }
    }

    /// Returns whether the table was made of these groups, in this order.
    bool is_of(const List<Group*>& groups) const noexcept {
        return std::equal(groups_.begin(), groups_.end(), groups.begin(), groups.end(),
                          [](const Known& known, const Group* group) { return known.identity == group->identity(); });
    }
    /// Returns whether one of its groups has ended.
    bool is_over() const noexcept {
        return std::any_of(groups_.begin(), groups_.end(), [](const Known& known) { return known.life.expired(); });
    }
    /// Adds a part of the groups with taken[i] != 0 to the sum that travels in `into`, with one launch for each run
    /// of neighbours.
    /// @return whether there was anything to add
    bool add_to(AddNormPieces add, Part part, const Stream& stream, std::span<const char> taken, const double* scale,
                double* into) const {
        bool any = false;
        const IndexRange* const of = pieces_of_.data() + (part == Part::counted ? 0 : groups_.size());
        const auto is_taken = [&](std::size_t i) { return taken[i] != 0; };
        for_each_run(0, groups_.size(), is_taken, [&](std::size_t begin, std::size_t end) {
            const IndexRange pieces{of[begin].begin, of[end - 1].end};
            if (pieces.empty()) { return; }
            any = true;
            const IndexRange positions{positions_[pieces.begin].begin, positions_[pieces.end - 1].end};
            add(stream, pieces_.data() + pieces.begin, pieces.size(), positions, scale, into);
        });
        return any;
    }

  private:
    struct Known {
        std::uint64_t identity;
        std::weak_ptr<void> life;
    };
    List<Known> groups_;
    List<IndexRange> pieces_of_;  // what is counted of each group, and behind that what is copied of each
    List<IndexRange> positions_;  // one for each piece
    EngineTable<NormRun> pieces_;
};

/// Holds a rank's memory for the norms of all its models: what sums are added in, and the totals, which take
/// turns.
class NormMemory {
  public:
    explicit NormMemory(Rank& rank) : rank_(&rank), subject_(subject_of(rank.world(), "the global norm")) {}
    /// Returns a rank's memory, where a norm begins.
    static NormMemory& begin(Rank& rank) {
        NormMemory& memory = rank.kept<NormMemory>();
        memory.left_ = {};
        memory.updates_.clear();
        for (Listed& list : memory.lists_) {
            list.groups.clear();
            list.taken.clear();
        }
        return memory;
    }
    /// Takes a trainable group into the norm that was begun last, in the order of the model.
    void list(Group& group) {
        // Without step_in_backward such a group can only be skipped, and has no memory for gradients.
        if (group.geometry().table.releases) { return; }
        const AddNormPieces add = group.elements().norm_partial;
        Listed* its =
            std::find_if(lists_.begin(), lists_.end(), [add](const Listed& each) { return each.add == add; });
        if (its == lists_.end()) { its = &lists_.push_back({add, {}, {}}); }
        its->groups.push_back(&group);
        its->taken.push_back(group.step().skipped() ? 0 : 1);
    }
    /// Adds the elements of the groups that were taken in to the sum that travels in `into`: those that this rank
    /// counts, and of those that other ranks count what is not finite.
    void add_to(const Stream& stream, const double* scale, double* into) {
        using Part = NormTable::Part;
        const auto add = [&](Part part) {
            bool any = false;
            for (const Listed& list : lists_) {
                if (list.groups.empty()) { continue; }
                any = table_of(list.groups).add_to(list.add, part, stream, list.taken.span(), scale, into) || any;
            }
            return any;
        };
        if (add(Part::copied)) { host::AnyKernels::run_once(stream, KeepNonfinite{into}); }
        add(Part::counted);
    }

    /// Returns what the norms' all-reduces are for.
    const engine::CallSubject* subject() const noexcept { return subject_; }

    /// Adds what one more group's updates were to what the norm's call states.
    void add_updates(StatementHash updates) { updates_.push_back(updates); }
    /// Returns what the norm's call states: the updates of all groups, and its gradients.
    StatementHash stated(StatementHash gradients) {
        if (rank_->world().size() == 1) { return 0; }
        StatementHash hash = 1;
        for (const StatementHash updates : updates_) { hash = statement_hash(hash, updates); }
        hash = statement_hash(hash, gradients);
        if (StatementBook* const book = book_of(rank_->world())) { book->note_norm(hash, gradients, updates_); }
        return hash;
    }

    /// Returns where a norm's total lies until `norm_slots` more were taken: two doubles in the engine's memory.
    double* take_total() {
        if (totals_.size() == 0) { totals_ = rank_->buffer<double>(NormNumbers::totals); }
        return totals_.data() + 2 * (taken_++ % norm_slots);
    }
    std::uint64_t taken() const noexcept { return taken_; }
    const Rank& rank() const noexcept { return *rank_; }

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
            rank_->compute_stream().synchronize();
            partial_norms_ = rank_->buffer<double>(count * each);
        }
        return {reinterpret_cast<PartialNorms*>(partial_norms_.data()), parameters};
    }

    /// Returns what a norm's sum is added in, kept between steps: the scale and NormNumbers::sent numbers.
    std::span<double> scratch() {
        if (scratch_.size() == 0) { scratch_ = rank_->buffer<double>(NormNumbers::scratch); }
        return scratch_.span();
    }

  private:
    Rank* rank_;
    const engine::CallSubject* subject_;
    HostBuffer<double> scratch_;
    HostBuffer<double> totals_;
    HostBuffer<double> partial_norms_;
    std::uint64_t taken_ = 0;
    std::vector<StatementHash> updates_;  // of each group
    /// Groups whose gradients have one type.
    struct Listed {
        AddNormPieces add;
        List<Group*> groups;
        List<char> taken;  // whether each has gradients in this step
    };
    const NormTable& table_of(const List<Group*>& groups) {
        for (const NormTable& table : tables_) {
            if (table.is_of(groups)) { return table; }
        }
        tables_.erase_if([](const auto& each) { return each.is_over(); });
        return tables_.push_back({*rank_, groups});
    }

    List<Listed> lists_;  // of the norm that was begun last
    /// One for each model and type that has had a norm. It stays as long as its groups, as a CUDA graph may read it.
    List<NormTable> tables_;
    FinishNorm left_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
