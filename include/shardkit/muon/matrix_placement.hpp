// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/muon/assign_owners.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::detail {

/// Which elements of a group each rank of the mesh updates.
class GroupHolders {
  public:
    GroupHolders(const GroupGeometry& group, const AxisGrid& mesh)
        : group_(&group), split_(mesh, group.policy, group.experts, group.path, {}) {
        const Extent updated = group.table.updated;
        copies_ = split_.copies(updated);
        const AxisNames shards = split_.axes(Over::shards);
        const AxisNames replicas = split_.axes(Over::replicas);
        for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
            Holder holder{};  // member by member: nvcc 13.0 crashes over a choice in its initializer
            const std::size_t shard = split_.grid().group(shards.span(), rank).index();
            const std::size_t piece = split_.grid().group(replicas.span(), rank).index() % group.pieces();
            holder.updated =
                updated == Extent::full ? IndexRange{0, group.buffer_numel} : group.range_of({shard, piece});
            holder.copy = split_.grid().group(copies_.span(), rank).index();
            holder.tp = mesh.coordinate(Tp::name, rank);
            holder.ep = group.experts ? split_.grid().coordinate(Ep::name, rank) : 0;
            ranks_.push_back(holder);
        }
    }

    const GroupGeometry& group() const noexcept { return *group_; }
    const AxisGrid& split() const noexcept { return split_.grid(); }
    std::size_t tp(std::size_t rank) const noexcept { return ranks_[rank].tp; }
    std::size_t ep(std::size_t rank) const noexcept { return ranks_[rank].ep; }
    /// The axes along which ranks hold copies of the same elements.
    AxisNames copies(const PlacedParameter& p) const {
        AxisNames axes = copies_;
        if (!p.split_over_tp()) { axes.add(Tp::name); }
        return axes;
    }
    /// The number of the copy that a rank holds its part of.
    std::size_t copy(const PlacedParameter& p, std::size_t rank) const noexcept {
        return p.split_over_tp() ? ranks_[rank].copy : ranks_[rank].copy * group_->tp + ranks_[rank].tp;
    }
    /// The elements that a rank updates, in the order of its part over tp.
    IndexRange elements(const PlacedParameter& p, std::size_t rank) const noexcept {
        const IndexRange common = intersect(p.range, ranks_[rank].updated);
        return common.empty() ? IndexRange{} : relative_to(common, p.range.begin);
    }

  private:
    struct Holder {
        IndexRange updated;
        std::size_t copy;
        std::size_t tp;
        std::size_t ep;
    };
    const GroupGeometry* group_;
    GroupMesh split_;
    AxisNames copies_;
    List<Holder> ranks_;
};

/// A parameter that an optimizer of whole matrices takes, or the part of it on the ranks with one index of tp.
struct MatrixUnit {
    static constexpr std::size_t all = static_cast<std::size_t>(-1);

    std::size_t group = 0;  ///< its number among the holders
    std::size_t parameter = 0;
    std::size_t tp = all;  ///< whose part it is
    std::size_t ep = 0;    ///< the ranks that share experts: whose experts they are
    rules::MatrixExtents extents;
    std::size_t block_rows = 0;  ///< of each matrix in it
    std::uint64_t cost = 0;
    std::size_t owner = 0;

    rules::MatrixExtents block() const noexcept { return {block_rows, extents.columns}; }
    std::size_t blocks() const noexcept { return extents.rows / block_rows; }
};

/// Some elements of a unit: what rank `rank` updates, at `offset` of a slot.
struct MatrixPiece {
    std::size_t unit;
    std::size_t rank;
    IndexRange elements;  ///< in the order of the rank's part
    std::size_t offset;
};

/// What one rank does in one exchange, in which each unit's elements travel to its owner and back the same way.
/// Counts are by rank: `sent` of the pieces, `received` of the owned.
struct MatrixBatch {
    std::vector<std::size_t> units;
    std::vector<std::size_t> sent, received;
    List<MatrixPiece> pieces;  ///< what this rank updates: first what it sends, by the owners' ranks
    List<MatrixPiece> owned;   ///< of what this rank owns: by the senders' ranks
    std::size_t pieces_numel = 0;
    std::size_t owned_numel = 0;
};

/// Which rank owns which matrix of a model, and which travel together. Pure arithmetic, the same on every rank.
/// In a batch each owner has about one matrix, of about the same size: several small ones, up to the largest of all
/// or `least_batch` elements.
class MatrixPlacement {
  public:
    static constexpr std::size_t least_batch = std::size_t{1} << 18U;

    MatrixPlacement() = default;
    /// @pre all units but their owners are given
    MatrixPlacement(const AxisGrid& mesh, List<GroupHolders> holders, List<MatrixUnit> units)
        : ranks_(mesh.size()), holders_(std::move(holders)), units_(std::move(units)), loads_(ranks_) {
        std::vector<std::uint64_t> costs;
        for (const MatrixUnit& unit : units_) { costs.push_back(unit.cost); }
        const auto owners =
            layout::assign_owners({costs.data(), costs.size()}, {loads_.data(), loads_.size()},
                                  [&](std::size_t unit, std::size_t rank) { return has_part(unit, rank); });
        for (std::size_t u = 0; u < units_.size(); ++u) { units_[u].owner = owners[u]; }
        make_batches();
        for (std::size_t b = 0; b < batches_.size(); ++b) {
            for (std::size_t rank = 0; rank < ranks_; ++rank) {
                const MatrixBatch batch = batch_of(b, rank);
                pieces_numel_ = std::max(pieces_numel_, batch.pieces_numel);
                owned_numel_ = std::max(owned_numel_, batch.owned_numel);
            }
        }
    }

    const List<MatrixUnit>& units() const noexcept { return units_; }
    const GroupHolders& holders(const MatrixUnit& unit) const noexcept { return holders_[unit.group]; }
    const PlacedParameter& parameter(const MatrixUnit& unit) const noexcept {
        return holders_[unit.group].group().parameters[unit.parameter];
    }
    std::size_t batches() const noexcept { return batches_.size(); }
    /// The cost of what each rank owns.
    std::span<const std::uint64_t> loads() const noexcept { return {loads_.data(), loads_.size()}; }
    /// The most elements of a batch that a rank updates, and that a rank owns: over all ranks.
    std::size_t pieces_numel() const noexcept { return pieces_numel_; }
    std::size_t owned_numel() const noexcept { return owned_numel_; }

    /// Whether a rank sends its elements to the owner, and gets them back from there: others hold copies.
    bool sends(const MatrixUnit& unit, std::size_t rank) const noexcept {
        const PlacedParameter& p = parameter(unit);
        return holders(unit).copy(p, rank) == holders(unit).copy(p, unit.owner);
    }
    /// The number, among ranks that hold copies of a unit's elements, of the one that sends them.
    std::size_t root(const MatrixUnit& unit, const RankGroup& copies) const noexcept {
        std::size_t root = 0;
        while (!sends(unit, copies.member(root))) { ++root; }
        return root;
    }
    MatrixBatch batch_of(std::size_t number, std::size_t rank) const {
        MatrixBatch batch;
        batch.units = batches_[number];
        batch.sent.resize(ranks_);
        batch.received.resize(ranks_);
        const auto add = [](List<MatrixPiece>& to, std::size_t unit, std::size_t of, IndexRange elements,
                            std::size_t& offset) {
            to.push_back({unit, of, elements, offset});
            offset += elements.size();
        };
        for (const bool sent : {true, false}) {
            for (const std::size_t u : batch.units) {
                const IndexRange elements = elements_of(u, rank);
                if (elements.empty() || sends(units_[u], rank) != sent) { continue; }
                if (sent) { batch.sent[units_[u].owner] += elements.size(); }
                add(batch.pieces, u, rank, elements, batch.pieces_numel);
            }
        }
        for (std::size_t from = 0; from < ranks_; ++from) {
            for (const std::size_t u : batch.units) {
                const IndexRange elements = elements_of(u, from);
                if (elements.empty() || units_[u].owner != rank || !sends(units_[u], from)) { continue; }
                batch.received[from] += elements.size();
                add(batch.owned, u, from, elements, batch.owned_numel);
            }
        }
        return batch;
    }
    /// The part of its parameter that a rank has, as the unit sees it.
    TensorPart part(const MatrixUnit& unit, std::size_t rank) const {
        const PlacedParameter& p = parameter(unit);
        const GroupHolders& of = holders(unit);
        if (unit.tp != MatrixUnit::all) { return TensorPart(p.part.shape()); }
        TensorShape shape = p.shape;
        if (p.experts) { shape.extents[0] /= of.group().ep; }  // a unit has one rank's stack
        return p.split_over_tp() ? TensorPart(shape, p.tp.dimension, of.group().tp, of.tp(rank)) : TensorPart(shape);
    }
    /// A number that tells apart what ranks must agree on.
    std::uint64_t hash() const {
        Fnv all;
        for (const MatrixUnit& unit : units_) {
            for (const std::uint64_t number :
                 {std::uint64_t{unit.group}, std::uint64_t{unit.parameter}, std::uint64_t{unit.tp},
                  std::uint64_t{unit.ep}, std::uint64_t{unit.extents.columns}, std::uint64_t{unit.block_rows},
                  std::uint64_t{unit.owner}, unit.cost}) {
                all.add(number);
            }
        }
        return all.hash;
    }

  private:
    bool has_part(std::size_t unit, std::size_t rank) const noexcept {
        const MatrixUnit& of = units_[unit];
        return of.ep == holders(of).ep(rank) && (of.tp == MatrixUnit::all || of.tp == holders(of).tp(rank));
    }
    IndexRange elements_of(std::size_t unit, std::size_t rank) const noexcept {
        return has_part(unit, rank) ? holders(units_[unit]).elements(parameter(units_[unit]), rank) : IndexRange{};
    }
    /// The largest first, so that owners work alike long; within a batch in the order of owners.
    void make_batches() {
        std::vector<std::size_t> order(units_.size());
        for (std::size_t i = 0; i < order.size(); ++i) { order[i] = i; }
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return units_[a].cost > units_[b].cost; });
        std::size_t most = least_batch;
        for (const MatrixUnit& unit : units_) { most = std::max(most, unit.extents.numel()); }
        std::vector<std::size_t> batch_of_rank(ranks_), numel(ranks_);
        for (const std::size_t u : order) {
            const std::size_t owner = units_[u].owner;
            const std::size_t own = units_[u].extents.numel();
            if (numel[owner] + own > most) {
                ++batch_of_rank[owner];
                numel[owner] = 0;
            }
            numel[owner] += own;
            if (batch_of_rank[owner] >= batches_.size()) { batches_.resize(batch_of_rank[owner] + 1); }
            batches_[batch_of_rank[owner]].push_back(u);
        }
        for (auto& batch : batches_) {
            std::sort(batch.begin(), batch.end(), [&](std::size_t a, std::size_t b) {
                return units_[a].owner != units_[b].owner ? units_[a].owner < units_[b].owner : a < b;
            });
        }
    }

    std::size_t ranks_ = 1;
    List<GroupHolders> holders_;
    List<MatrixUnit> units_;
    std::vector<std::uint64_t> loads_;
    std::vector<std::vector<std::size_t>> batches_;
    std::size_t pieces_numel_ = 0;
    std::size_t owned_numel_ = 0;
};

/// The elements that a rank holds for whole matrices: slots of pieces and of what it owns, one matrix and what the
/// rule works in and keeps.
struct MatrixMemory {
    std::size_t batches = 0;  ///< that may be under way, each in a slot
    std::size_t pieces = 0, owned = 0, matrix = 0, scratch = 0, kept = 0;

    std::size_t slots() const noexcept { return batches * (pieces + owned); }
    std::size_t works() const noexcept { return matrix + scratch + kept; }
};
inline MatrixMemory matrix_memory(const MatrixSizes& sizes, const MatrixPlacement& placement, std::size_t rank) {
    MatrixMemory memory{std::min(placement.batches(), BatchSteps::slots), placement.pieces_numel(),
                        placement.owned_numel()};
    for (const MatrixUnit& unit : placement.units()) {
        if (unit.owner != rank) { continue; }
        memory.matrix = std::max(memory.matrix, unit.extents.numel());
        memory.scratch = std::max(memory.scratch, sizes.scratch(unit.block()));
        memory.kept += unit.blocks() * sizes.kept(unit.block());
    }
    return memory;
}

/// Whether `matrices` say that a parameter of the group at `path` is one.
inline bool is_matrix(const Matrices& matrices, std::string_view path, const PlacedParameter& p) {
    return matrices.matches ? matrices.matches(path, p.name) : p.matrix && p.shape.rank >= (p.experts ? 3U : 2U);
}

/// The rows and columns of a tensor, row-major, as `matrices` say, and how many rows are a matrix by themselves. Of a
/// stack of experts each one is a matrix by itself, on whatever ranks they are.
/// @throws std::invalid_argument for fewer dimensions than two (three of experts), more of which nobody said what
///         is a matrix, and Matrices::block_rows that do not divide them
struct MatrixShape {
    rules::MatrixExtents extents;
    std::size_t block_rows;
};
inline MatrixShape matrix_shape(const Matrices& matrices, std::string_view path, std::string_view name,
                                const TensorShape& shape, bool experts, SourceLocation where) {
    const auto unsaid = experts && shape.rank == 3 ? MatrixUnits::last_two : MatrixUnits::none;
    const auto units = shape.rank > 2 && matrices.units ? matrices.units(path, name) : unsaid;
    require_argument(shape.rank >= (experts ? 3 : 2), where, "'", path, ".", name, "' has the shape ",
                     shape.describe(), ", expected ",
                     experts ? "three dimensions of a stack of experts that are matrices"
                             : "two dimensions of a parameter that is a matrix");
    require_argument(shape.rank == 2 || units != MatrixUnits::none, where, "'", path, ".", name, "' has the shape ",
                     shape.describe(),
                     ", expected Matrices::units, which say what of more than two dimensions is a matrix, "
                     "or a parameter that is marked NoMatrix, which another optimizer updates");
    const bool flattened = units == MatrixUnits::flattened;
    const std::size_t first = experts ? 1 : 0;  // behind the number of experts
    std::size_t columns = flattened ? 1 : shape.extents[shape.rank - 1];
    for (std::size_t d = first + 1; flattened && d < shape.rank; ++d) { columns *= shape.extents[d]; }
    const std::size_t rows = shape.extents[flattened ? first : shape.rank - 2];  // that are side by side
    MatrixShape made{{shape.numel() / columns, columns}, matrices.block_rows ? matrices.block_rows(path, name) : 0};
    if (made.block_rows == 0) { made.block_rows = rows; }
    require_argument(rows % made.block_rows == 0, where, "'", path, ".", name, "': block_rows is ", made.block_rows,
                     ", expected a number that divides its ", rows, " rows");
    return made;
}

/// The units of one group's parameters for which `is_taken(parameter)`. `group`: its number among the holders.
/// @throws std::invalid_argument as matrix_shape
template <class IsTaken>
void add_units(const GroupGeometry& in, std::size_t group, const MatrixSizes& sizes, const Matrices& matrices,
               const IsTaken& is_taken, List<MatrixUnit>& units, SourceLocation where) {
    for (std::size_t number = 0; number < in.parameters.size(); ++number) {
        const PlacedParameter& p = in.parameters[number];
        if (!is_taken(number)) { continue; }
        const bool parts = p.split_over_tp() && in.tp > 1 && matrices.tp == TpMatrices::parts;
        TensorShape of_unit = parts ? p.part.shape() : p.shape;
        if (p.experts && !parts) { of_unit.extents[0] /= in.ep; }
        const MatrixShape shape = matrix_shape(matrices, in.path, p.name, of_unit, p.experts, where);
        MatrixUnit unit{group, number, MatrixUnit::all, 0, shape.extents, shape.block_rows};
        unit.cost = unit.blocks() * sizes.cost(unit.block());
        for (unit.ep = 0; unit.ep < in.ep; ++unit.ep) {
            for (std::size_t tp = 0; tp < (parts ? in.tp : 1); ++tp) {
                if (parts) { unit.tp = tp; }
                units.push_back(unit);
            }
        }
    }
}

}  // namespace shardkit::detail
