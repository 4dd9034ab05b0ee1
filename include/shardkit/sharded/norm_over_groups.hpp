// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/sharded/norm_pieces.hpp>

namespace shardkit::detail {

/// One group's part in a norm on this rank.
template <class T>
struct NormGroup {
    std::uint64_t identity = 0;
    const std::shared_ptr<void>* life = nullptr;  ///< its weak copies expire with the group
    std::span<const T> reduced;
    const List<IndexRange>* counted = nullptr;  ///< ranges of `reduced`
    const List<IndexRange>* copied = nullptr;   ///< likewise, of elements that another rank counts
};

/// Ranges of the groups' elements of type T, as a table in the engine's memory.
template <class Engine, class T>
class NormRanges {
  public:
    NormRanges(Context<Engine>& context, const List<NormGroup<T>>& groups, const List<IndexRange>* NormGroup<T>::*of);

    /// Adds the groups with taken[i] != 0 to the sum that travels in `into`, with one launch for each run of
    /// neighbours.
    /// @return whether there was anything to add
    bool add_to(const typename Engine::Stream& stream, std::span<const char> taken, const double* scale,
                double* into) const;

  private:
    List<IndexRange> pieces_of_;  // of each group
    List<IndexRange> positions_;  // one for each piece
    EngineTable<Engine, engine::NormPiece<T>> pieces_;
};

/// The elements that one model's norm reads on this rank: those that it counts, and those that another rank counts.
template <class Engine, class T>
class NormTable {
  public:
    NormTable(Context<Engine>& context, const List<NormGroup<T>>& groups);

    const NormRanges<Engine, T>& counted() const noexcept { return counted_; }
    const NormRanges<Engine, T>& copied() const noexcept { return copied_; }

    /// Returns whether the table was made of these groups, in this order.
    bool is_of(const List<NormGroup<T>>& groups) const noexcept {
        bool same = groups_.size() == groups.size();
        for (std::size_t i = 0; same && i < groups_.size(); ++i) { same = groups_[i] == groups[i].identity; }
        return same;
    }
    /// Returns whether one of its groups has ended.
    bool is_over() const noexcept;

  private:
    NormRanges<Engine, T> counted_;
    NormRanges<Engine, T> copied_;
    std::vector<std::uint64_t> groups_;
    List<std::weak_ptr<void>> lives_;
};

/// The groups with one type of reduced gradients that a norm is taken over.
template <class Engine>
class NormList {
  public:
    /// Adds the elements of the listed groups that other ranks count, and @returns whether there are any.
    virtual bool add_copied_to(const typename Engine::Stream& stream, const double* scale, double* into) = 0;
    /// Adds the listed groups to the sum that travels in `into`.
    virtual void add_to(const typename Engine::Stream& stream, const double* scale, double* into) = 0;

  protected:
    ~NormList() = default;
};

/// A rank's tables, one for each model that has had a norm. A table stays as long as its groups, as a CUDA graph may
/// read it.
template <class Engine, class T>
class NormTables final : public NormList<Engine> {
  public:
    explicit NormTables(Context<Engine>& context) noexcept;

    /// Lists a trainable group whose reduced gradients have type T for the norm with number `norm`, in the order of
    /// the model. `taken` says whether it has gradients in this step.
    void list(std::uint64_t norm, const NormGroup<T>& group, bool taken);
    bool add_copied_to(const typename Engine::Stream& stream, const double* scale, double* into) override {
        return !listed_.empty() && table().copied().add_to(stream, taken_.span(), scale, into);
    }
    void add_to(const typename Engine::Stream& stream, const double* scale, double* into) override {
        if (!listed_.empty()) { table().counted().add_to(stream, taken_.span(), scale, into); }
    }

  private:
    /// Returns the table of the listed groups.
    const NormTable<Engine, T>& table();

    Context<Engine>* context_;
    std::uint64_t norm_ = 0;
    List<NormTable<Engine, T>> tables_;
    List<NormGroup<T>> listed_;  // groups of the current norm
    List<char> taken_;
};

// Defined out of the classes, so that `extern template` keeps them out of a user's file.

template <class Engine, class T>
NormRanges<Engine, T>::NormRanges(Context<Engine>& context, const List<NormGroup<T>>& groups,
                                  const List<IndexRange>* NormGroup<T>::*of) {
    List<std::span<const T>> runs;
    for (const NormGroup<T>& group : groups) {
        const List<IndexRange>& ranges = *(group.*of);
        pieces_of_.push_back({runs.size(), runs.size() + ranges.size()});
        for (const IndexRange range : ranges) { runs.push_back(group.reduced.subspan(range.begin, range.size())); }
    }
    const List<engine::NormPiece<T>> pieces = list_norm_pieces(runs.span());
    for (const engine::NormPiece<T>& piece : pieces) { positions_.push_back(IndexRange{piece.begin, piece.end}); }
    if (!pieces.empty()) { pieces_ = {context, pieces.data(), pieces.size()}; }
}

template <class Engine, class T>
NormTable<Engine, T>::NormTable(Context<Engine>& context, const List<NormGroup<T>>& groups)
    : counted_(context, groups, &NormGroup<T>::counted), copied_(context, groups, &NormGroup<T>::copied) {
    for (const NormGroup<T>& group : groups) {
        groups_.push_back(group.identity);
        lives_.push_back(*group.life);
    }
}

template <class Engine, class T>
bool NormTable<Engine, T>::is_over() const noexcept {
    for (const std::weak_ptr<void>& life : lives_) {
        if (life.expired()) { return true; }
    }
    return false;
}

template <class Engine, class T>
bool NormRanges<Engine, T>::add_to(const typename Engine::Stream& stream, std::span<const char> taken,
                                   const double* scale, double* into) const {
    bool any = false;
    const auto is_taken = [&](std::size_t i) { return taken[i] != 0; };
    for_each_run(0, pieces_of_.size(), is_taken, [&](std::size_t begin, std::size_t end) {
        const IndexRange pieces{pieces_of_[begin].begin, pieces_of_[end - 1].end};
        if (pieces.empty()) { return; }
        any = true;
        Engine::Kernels::norm_partial(
            stream, std::span<const engine::NormPiece<T>>(pieces_.span()).subspan(pieces.begin, pieces.size()),
            IndexRange{positions_[pieces.begin].begin, positions_[pieces.end - 1].end}, scale, into);
    });
    return any;
}

template <class Engine, class T>
NormTables<Engine, T>::NormTables(Context<Engine>& context) noexcept : context_(&context) {}

template <class Engine, class T>
void NormTables<Engine, T>::list(std::uint64_t norm, const NormGroup<T>& group, bool taken) {
    if (norm != norm_) {  // drops the list of an earlier norm, completed or not
        listed_.clear();
        taken_.clear();
        norm_ = norm;
    }
    listed_.push_back(group);
    taken_.push_back(taken ? 1 : 0);
}

template <class Engine, class T>
const NormTable<Engine, T>& NormTables<Engine, T>::table() {
    for (const NormTable<Engine, T>& table : tables_) {
        if (table.is_of(listed_)) { return table; }
    }
    tables_.erase_if([](const auto& each) { return each.is_over(); });
    return tables_.push_back({*context_, listed_});
}

}  // namespace shardkit::detail
