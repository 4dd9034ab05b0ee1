// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/spi/placement.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/verify/verify.hpp>

namespace shardkit::detail {

/// Returns "rank 3", "ranks 0 and 1", or "ranks 0, 1, 2 and 5 more".
inline std::string named_ranks(std::span<const std::size_t> ranks) {
    constexpr std::size_t shown = 8;
    const std::size_t named = ranks.size() <= shown ? ranks.size() : shown;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < named; ++i) {
        const bool last = i + 1 == ranks.size();
        append(text, i == 0 ? "" : last ? " and " : ", ", ranks[i]);
    }
    return named < ranks.size() ? concat(text, " and ", ranks.size() - named, " more") : text;
}

/// Compares what ranks hold more than once. Each rank adds the same items in the same order, then calls `compare`.
class ReplicaComparison {
  public:
    explicit ReplicaComparison(Rank& rank) : rank_(rank) {}

    /// Adds all pieces of a group's buffer that other ranks hold as well.
    void add(const GroupGeometry& group, const HeldMemory& values) {
        List<HeldPiece> pieces;
        list_pieces(group, values, pieces);
        for (HeldPiece& piece : pieces) {
            const std::size_t holders = holders_of(group, piece.values.extent, group.parameters[piece.parameter]);
            if (group_of(holders, 0).size() == 1) { continue; }
            items_.push_back({holders, pieces_.size(), {}, 0});
            pieces_.push_back(std::move(piece));
        }
    }
    /// Adds a number that all ranks hold.
    void add(std::string name, std::uint64_t hash) {
        std::vector<std::string_view> axes;
        for (std::size_t a = 0; a < rank_.grid().axis_count(); ++a) { axes.push_back(rank_.grid().axis(a).name); }
        const std::size_t holders = set_of(rank_.grid(), axes);
        if (group_of(holders, 0).size() > 1) { items_.push_back({holders, none, std::move(name), hash}); }
    }

    /// Collective over the world. @throws ReplicaError, the same on every rank
    void compare(SourceLocation where) {
        const std::vector<std::uint64_t> digests = digests_of(rank_, pieces_);
        for (Item& item : items_) {
            if (item.piece != none) { item.digest = digests[item.piece]; }
        }
        // One hash for each set of ranks first: without a difference, nothing else travels.
        std::vector<std::uint64_t> all(sets_.size(), 1);
        for (const Item& item : items_) { all[item.holders] = statement_hash(all[item.holders], item.digest); }
        const auto hashes = gather_values(rank_, all, where);
        bool equal = true;
        for (std::size_t set = 0; set < sets_.size(); ++set) {
            for (std::size_t rank = 0; rank < rank_.world_size(); ++rank) {
                equal = equal &&
                        hashes[rank * sets_.size() + set] == hashes[group_of(set, rank).color() * sets_.size() + set];
            }
        }
        if (!equal) { report(where); }
    }

  private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    /// The ranks that share all coordinates but those along some axes.
    struct HolderSet {
        AxisGrid grid;
        std::vector<std::string_view> axes;
    };
    struct Item {
        std::size_t holders;  ///< their number in sets_
        std::size_t piece;    ///< its number; `none`: a number with a name
        std::string name;
        std::uint64_t digest;
    };
    /// Returns the number of the set of ranks that hold the same elements of a parameter as this one.
    std::size_t holders_of(const GroupGeometry& group, Extent extent, const PlacedParameter& parameter) {
        const GroupMesh ranks(rank_.grid(), group.policy, group.experts, group.path, SourceLocation{});
        const AxisNames data = ranks.copies(extent);
        std::vector<std::string_view> axes(data.begin(), data.end());
        if (!parameter.split_over_tp()) { axes.push_back(Tp::name); }
        return set_of(ranks.grid(), axes);
    }
    std::size_t set_of(const AxisGrid& grid, const std::vector<std::string_view>& axes) {
        const auto key = std::pair(grid.describe(), axes);
        const auto [found, is_new] = numbers_.emplace(key, sets_.size());
        if (is_new) { sets_.push_back({grid, axes}); }
        return found->second;
    }
    RankGroup group_of(std::size_t set, std::size_t rank) const {
        return sets_[set].grid.group(sets_[set].axes, rank);
    }
    /// Finds the items that differ. All ranks see the same numbers, so all throw the same.
    [[noreturn]] void report(SourceLocation where) {
        std::vector<std::uint64_t> mine;
        for (const Item& item : items_) { mine.push_back(item.digest); }
        const auto digests = gather_values(rank_, mine, where);
        std::vector<ReplicaDifference> differences;
        for (std::size_t i = 0; i < items_.size(); ++i) {
            const auto digest_of = [&](std::size_t rank) { return digests[rank * items_.size() + i]; };
            for (std::size_t rank = 0; rank < rank_.world_size(); ++rank) {
                const RankGroup group = group_of(items_[i].holders, rank);
                if (group.index() != 0) { continue; }  // once for each group
                ReplicaDifference found;
                std::map<std::uint64_t, std::size_t> holders;  // their number, by digest
                for (std::size_t m = 0; m < group.size(); ++m) { found.ranks.push_back(group.member(m)); }
                std::sort(found.ranks.begin(), found.ranks.end());
                for (const std::size_t member : found.ranks) { ++holders[digest_of(member)]; }
                if (holders.size() == 1) { continue; }
                const auto most = std::max_element(holders.begin(), holders.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
                for (const std::size_t member : found.ranks) {
                    const bool wrong = 2 * most->second > group.size() && digest_of(member) != most->first;
                    if (wrong) { found.wrong.push_back(member); }
                }
                found.what = name_of(items_[i]);
                differences.push_back(std::move(found));
            }
        }
        constexpr std::size_t shown = 4;
        std::string text = "verify_replicas: ";
        for (std::size_t d = 0; d < differences.size() && d < shown; ++d) {
            append(text, d == 0 ? "" : "; ", text_of(differences[d]));
        }
        if (differences.size() > shown) { append(text, "; and ", differences.size() - shown, " more"); }
        append(text, "; expected equal bits on ranks that hold the same elements (", place(where), ")");
        throw ReplicaError(std::move(differences), text);
    }
    std::string name_of(const Item& item) const {
        if (item.piece == none) { return item.name; }
        const HeldPiece& piece = pieces_[item.piece];
        return concat("'", piece.group->path, "' ", piece.values.name(), piece.values.ending(), " of '",
                      piece.group->parameters[piece.parameter].name, "'");
    }
    static std::string text_of(const ReplicaDifference& found) {
        if (found.wrong.empty()) {
            return concat(found.what, " differs between ", named_ranks(found.ranks),
                          ", and no majority says which is wrong");
        }
        std::vector<std::size_t> right;
        std::set_difference(found.ranks.begin(), found.ranks.end(), found.wrong.begin(), found.wrong.end(),
                            std::back_inserter(right));
        return concat(found.what, " differs on ", named_ranks(found.wrong), " from the majority, ",
                      named_ranks(right));
    }

    Rank& rank_;
    std::vector<HolderSet> sets_;
    std::map<std::pair<std::string, std::vector<std::string_view>>, std::size_t> numbers_;  // of sets_
    std::vector<Item> items_;
    List<HeldPiece> pieces_;
};

inline StatementHash hash_of(const GroupProgress& progress) {
    StatementHash hash = statement_hash(0, progress.own.size());
    const auto add = [&](const std::vector<std::uint64_t>& list) {
        for (const std::uint64_t number : list) { hash = statement_hash(hash, number); }
    };
    add(progress.own);
    add(progress.parameters);
    for (const GroupProgress::Part& part : progress.parts) {
        hash = statement_hash(hash, part.parameter, part.begin);
        add(part.numbers);
    }
    return hash;
}
/// Adds what an optimizer holds: first all states of elements, then what every rank has: steps, states of shapes of
/// their own, and hyper-parameters. Waits for the compute stream.
inline void compare_optimizer(ReplicaComparison& comparison, Optimizer& optimizer, SourceLocation where) {
    const auto hash_of_all = [](const Group& group, const StoredElements& values) {
        const std::span<const std::byte> from = values.bytes();
        std::string bytes(from.size(), '\0');
        host::AnyKernels::copy_bytes(group.rank().compute_stream(), from.data(), bytes.data(), bytes.size());
        Fnv fnv;
        fnv.add(std::string_view(bytes));
        return fnv.hash;
    };
    std::vector<std::pair<std::string, std::uint64_t>> numbers;
    const spi::OptimizerContents contents(optimizer, where);
    const auto progress = contents.progress();
    std::size_t next = 0;
    for (const auto& of : contents.held()) {
        const GroupGeometry& group = of.group->geometry();
        numbers.emplace_back(concat("'", group.path, "' count of steps"), hash_of(progress[next++]));
        for (const HeldMemory& each : of.held) {
            if (each.shape.rows == 0) {
                comparison.add(group, each);
            } else if (each.shape.everywhere) {
                numbers.emplace_back(concat("'", group.path, "' ", each.name(), " of '",
                                            group.parameters[each.shape.parameter].name, "'"),
                                     hash_of_all(*of.group, each.values));
            }
        }
    }
    for (const std::uint64_t hash : contents.hyper_parameters()) {
        numbers.emplace_back("the optimizer's set of hyper-parameters", hash);
    }
    for (auto& [name, hash] : numbers) { comparison.add(std::move(name), hash); }
}

inline void verify_replicas(const Model& model, Optimizer* optimizer, const LossScale* loss_scale,
                            SourceLocation where) {
    auto& rank = detail::rank_of(model, where);
    if (rank.world_size() == 1) { return; }
    ReplicaComparison comparison(rank);
    for (Group& group : spi::groups(model, where)) {
        group.require_whole("verify_replicas", where);
        for (const HeldMemory& values : group.held()) { comparison.add(group.geometry(), values); }
    }
    if (optimizer != nullptr) { compare_optimizer(comparison, *optimizer, where); }
    if (loss_scale != nullptr) {
        const LossScaleState now = loss_scale->state(where);
        comparison.add("the loss scale", statement_hash(0, std::bit_cast<std::uint64_t>(now.value()),
                                                        now.clean_steps(), now.overflows(), now.skipped_steps()));
    }
    comparison.compare(where);
}

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void verify_replicas(const Model& model, SourceLocation where) {
    detail::verify_replicas(model, nullptr, nullptr, where);
}
SHARDKIT_CORE_INLINE void verify_replicas(const Model& model, Optimizer& optimizer, SourceLocation where) {
    detail::verify_replicas(model, &optimizer, nullptr, where);
}
SHARDKIT_CORE_INLINE void verify_replicas(const Model& model, Optimizer& optimizer, const LossScale& loss_scale,
                                          SourceLocation where) {
    detail::verify_replicas(model, &optimizer, &loss_scale, where);
}

}  // namespace shardkit SHARDKIT_FACE
