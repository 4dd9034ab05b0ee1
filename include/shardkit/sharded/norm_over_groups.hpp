// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/sharded/norm_pieces.hpp>

namespace shardkit::detail {

/// One group's part in a norm on this rank.
struct NormGroup {
    std::uint64_t identity = 0;
    const std::shared_ptr<void>* life = nullptr;  ///< its weak copies expire with the group
    StoredElements reduced;
    const List<IndexRange>* counted = nullptr;  ///< ranges of `reduced`
    const List<IndexRange>* copied = nullptr;   ///< likewise, of elements that another rank counts
};

/// Adds the elements of `count` pieces to a sum: Kernels::norm_partial of their type.
template <class Engine>
using AddNormPieces = void (*)(const typename Engine::Stream& stream, const NormRun* pieces, std::size_t count,
                               IndexRange positions, const double* scale, double* into);

/// Ranges of the groups' elements, as a table in the engine's memory.
template <class Engine>
class NormRanges {
  public:
    NormRanges(Context<Engine>& context, const List<NormGroup>& groups, const List<IndexRange>* NormGroup::*of);

    /// Adds the groups with taken[i] != 0 to the sum that travels in `into`, with one launch for each run of
    /// neighbours.
    /// @return whether there was anything to add
    bool add_to(AddNormPieces<Engine> add, const typename Engine::Stream& stream, std::span<const char> taken,
                const double* scale, double* into) const;

  private:
    List<IndexRange> pieces_of_;  // of each group
    List<IndexRange> positions_;  // one for each piece
    EngineTable<Engine, NormRun> pieces_;
};

/// The elements that one model's norm reads on this rank: those that it counts, and those that another rank counts.
template <class Engine>
class NormTable {
  public:
    NormTable(Context<Engine>& context, const List<NormGroup>& groups);

    const NormRanges<Engine>& counted() const noexcept { return counted_; }
    const NormRanges<Engine>& copied() const noexcept { return copied_; }

    /// Returns whether the table was made of these groups, in this order.
    bool is_of(const List<NormGroup>& groups) const noexcept {
        bool same = groups_.size() == groups.size();
        for (std::size_t i = 0; same && i < groups_.size(); ++i) { same = groups_[i] == groups[i].identity; }
        return same;
    }
    /// Returns whether one of its groups has ended.
    bool is_over() const noexcept;

  private:
    NormRanges<Engine> counted_;
    NormRanges<Engine> copied_;
    std::vector<std::uint64_t> groups_;
    List<std::weak_ptr<void>> lives_;
};

/// A rank's tables of groups with one type of reduced gradients, one for each model that has had a norm. A table
/// stays as long as its groups, as a CUDA graph may read it.
template <class Engine>
class NormTables {
  public:
    NormTables(Context<Engine>& context, AddNormPieces<Engine> add) noexcept : context_(&context), add_(add) {}

    bool adds_by(AddNormPieces<Engine> add) const noexcept { return add_ == add; }
    /// Lists a trainable group for the norm with number `norm`, in the order of the model. `taken` says whether it
    /// has gradients in this step.
    void list(std::uint64_t norm, const NormGroup& group, bool taken);
    /// Adds the elements of the listed groups that other ranks count, and @returns whether there are any.
    bool add_copied_to(const typename Engine::Stream& stream, const double* scale, double* into) {
        return table().copied().add_to(add_, stream, taken_.span(), scale, into);
    }
    /// Adds the listed groups to the sum that travels in `into`.
    void add_to(const typename Engine::Stream& stream, const double* scale, double* into) {
        table().counted().add_to(add_, stream, taken_.span(), scale, into);
    }

  private:
    /// Returns the table of the listed groups.
    const NormTable<Engine>& table();

    Context<Engine>* context_;
    AddNormPieces<Engine> add_;
    std::uint64_t norm_ = 0;
    List<NormTable<Engine>> tables_;
    List<NormGroup> listed_;  // groups of the current norm
    List<char> taken_;
};

// Defined out of the classes, so that `extern template` keeps them out of a user's file.

template <class Engine>
NormRanges<Engine>::NormRanges(Context<Engine>& context, const List<NormGroup>& groups,
                               const List<IndexRange>* NormGroup::*of) {
    List<StoredElements> runs;
    for (const NormGroup& group : groups) {
        const List<IndexRange>& ranges = *(group.*of);
        pieces_of_.push_back({runs.size(), runs.size() + ranges.size()});
        for (const IndexRange range : ranges) { runs.push_back(group.reduced.subspan(range.begin, range.size())); }
    }
    const List<NormRun> pieces = list_norm_pieces(runs);
    for (const NormRun& piece : pieces) { positions_.push_back(IndexRange{piece.begin, piece.end}); }
    if (!pieces.empty()) { pieces_ = {context, pieces.data(), pieces.size()}; }
}

template <class Engine>
NormTable<Engine>::NormTable(Context<Engine>& context, const List<NormGroup>& groups)
    : counted_(context, groups, &NormGroup::counted), copied_(context, groups, &NormGroup::copied) {
    for (const NormGroup& group : groups) {
        groups_.push_back(group.identity);
        lives_.push_back(*group.life);
    }
}

template <class Engine>
bool NormTable<Engine>::is_over() const noexcept {
    for (const std::weak_ptr<void>& life : lives_) {
        if (life.expired()) { return true; }
    }
    return false;
}

template <class Engine>
bool NormRanges<Engine>::add_to(AddNormPieces<Engine> add, const typename Engine::Stream& stream,
                                std::span<const char> taken, const double* scale, double* into) const {
    bool any = false;
    const auto is_taken = [&](std::size_t i) { return taken[i] != 0; };
    for_each_run(0, pieces_of_.size(), is_taken, [&](std::size_t begin, std::size_t end) {
        const IndexRange pieces{pieces_of_[begin].begin, pieces_of_[end - 1].end};
        if (pieces.empty()) { return; }
        any = true;
        const IndexRange positions{positions_[pieces.begin].begin, positions_[pieces.end - 1].end};
        add(stream, pieces_.data() + pieces.begin, pieces.size(), positions, scale, into);
    });
    return any;
}

template <class Engine>
void NormTables<Engine>::list(std::uint64_t norm, const NormGroup& group, bool taken) {
    if (norm != norm_) {  // drops the list of an earlier norm, completed or not
        listed_.clear();
        taken_.clear();
        norm_ = norm;
    }
    listed_.push_back(group);
    taken_.push_back(taken ? 1 : 0);
}

template <class Engine>
const NormTable<Engine>& NormTables<Engine>::table() {
    for (const NormTable<Engine>& table : tables_) {
        if (table.is_of(listed_)) { return table; }
    }
    tables_.erase_if([](const auto& each) { return each.is_over(); });
    return tables_.push_back({*context_, listed_});
}

}  // namespace shardkit::detail
