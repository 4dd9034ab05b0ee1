// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include <shardkit/core/aligned_pack.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/muon/matrix_placement.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/verbs/all_to_all.hpp>

namespace shardkit::detail {

/// Copies a piece of a part to its place in the whole matrix, or back: a vector of the part's elements by index, or
/// all of them. A vector is one access where the part's runs in the matrix are vectors too and both memories begin
/// there.
template <std::floating_point A, bool Back>
struct MovePiece {
    static constexpr std::size_t lanes = lanes_for<A>;

    A* piece;
    A* matrix;
    TensorPart part;
    IndexRange elements;  // of the part
    bool packs;

    MovePiece(A* of_piece, A* of_matrix, const TensorPart& of_part, IndexRange of_elements)
        : piece(of_piece),
          matrix(of_matrix),
          part(of_part),
          elements(of_elements),
          packs((part.block() % lanes == 0 || part.block() == part.numel()) && part.whole_index(0) % lanes == 0 &&
                elements_past_pack<lanes>(matrix) == 0 &&
                elements_past_pack<lanes>(piece) == elements.begin % lanes) {}

    constexpr std::uint64_t vectors() const {
        return elements.empty() ? 0 : (elements.end - 1) / lanes - elements.begin / lanes + 1;
    }
    constexpr void operator()(std::uint64_t i) const {
        const std::size_t first = (elements.begin / lanes + i) * lanes;
        const std::size_t begin = first < elements.begin ? elements.begin : first;
        const std::size_t end = first + lanes < elements.end ? first + lanes : elements.end;
        if (packs && end - begin == lanes) {
            A* const in_piece = piece + (begin - elements.begin);
            A* const in_matrix = matrix + part.whole_index(begin);
            return store(load<lanes>(Back ? in_matrix : in_piece), Back ? in_piece : in_matrix);
        }
        move(begin, end);
    }
    constexpr void operator()() const { move(elements.begin, elements.end); }

  private:
    constexpr void move(std::size_t begin, std::size_t end) const {
        part.for_each_run(begin, end, [this](std::size_t i, std::size_t whole, std::size_t run) {
            A* const in_piece = piece + (i - elements.begin);
            A* const in_matrix = matrix + whole;
            for (std::size_t e = 0; e < run; ++e) {
                (Back ? in_piece : in_matrix)[e] = (Back ? in_matrix : in_piece)[e];
            }
        });
    }
};

/// The ranks that hold copies of a unit's elements, to which one of them gives what it gets from the owner.
struct MatrixCopies {
    std::optional<Communicator> ranks;  ///< none: this rank alone
    std::size_t root = 0;

    /// Collective over the world on first use.
    MatrixCopies(Rank& rank, const MatrixPlacement& placement, const MatrixUnit& unit) {
        const GroupHolders& holders = placement.holders(unit);
        const AxisNames axes = holders.copies(placement.parameter(unit));
        const RankGroup group = holders.split().group(axes.span(), rank.rank());
        if (group.size() == 1) { return; }
        ranks = rank.communicator(holders.split(), axes, {});
        root = placement.root(unit, group);
    }
};

/// Checks that every rank places the same matrices. Collective over the world; the host waits.
/// @throws std::invalid_argument, the same on every rank
inline void require_same_matrices(Rank& rank, const MatrixPlacement& placement, SourceLocation where) {
    if (rank.world_size() == 1) { return; }
    const double mine[] = {static_cast<double>(placement.hash() >> 12U)};
    const std::size_t other = first_apart(gather_values(rank, std::span<const double>(mine), where));
    if (other == rank.world_size()) { return; }
    throw_invalid_argument(
        where, "optimizer of whole matrices: rank ", other,
        " takes other matrices than rank 0, or other blocks of them; expected the same Matrices on "
        "every rank");
}

/// Sends each rank its share of `from`, which begins with them in the order of ranks, and receives as many shares
/// into `to`. Order: on the communication stream; collective over the world.
template <class A>
void exchange_pieces(const Rank& rank, std::span<const std::size_t> sent, std::span<A> from,
                     std::span<const std::size_t> received, std::span<A> to, SourceLocation where) {
    const auto of = [](std::span<A> all, std::span<const std::size_t> counts) {
        return all.first(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    };
    all_to_all_uneven(rank.world(), std::span<const A>(of(from, sent)), sent, of(to, received), received,
                      rank.communication_stream(), where);
}

}  // namespace shardkit::detail
