// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verify/verify.hpp>

namespace shardkit::detail {

/// Returns what tells a tensor's digest from another one's of its group.
inline std::uint64_t hash_seed(const PlacedParameter& parameter) noexcept {
    Fnv seed;
    seed.add(parameter.name);
    return seed.hash;
}

/// Collects what this rank counts in hashes over all ranks, so that each element is counted by exactly one rank.
class HashSum {
  public:
    explicit HashSum(Rank& rank) : rank_(rank) {}

    void add(const GroupGeometry& group, const HeldMemory& values) {
        List<HeldPiece> pieces;
        list_pieces(group, values, pieces);
        const std::string kind = concat(values.name(), values.ending());
        // Several optimizers of one group have states of one name, each of its own parameters.
        auto hash = std::find_if(hashes_.begin(), hashes_.end(),
                                 [&](const ValuesHash& one) { return one.path == group.path && one.kind == kind; });
        if (hash == hashes_.end()) { hash = hashes_.insert(hash, {group.path, kind, 0}); }
        for (HeldPiece& piece : pieces) {
            const Extent counted = piece.values.extent == Extent::full ? Extent::shard : piece.values.extent;
            piece.flat = intersect(piece.flat, group.range(counted));
            if (piece.flat.empty() || group.replica(piece.parameter, counted) != 0) { continue; }
            piece.seed = hash_seed(group.parameters[piece.parameter]);
            of_.push_back(static_cast<std::size_t>(hash - hashes_.begin()));
            pieces_.push_back(std::move(piece));
        }
    }
    /// Returns the hashes, the same on every rank. Collective over the world.
    std::vector<ValuesHash> take(SourceLocation where) {
        const std::vector<std::uint64_t> digests = digests_of(rank_, pieces_);
        for (std::size_t i = 0; i < digests.size(); ++i) { hashes_[of_[i]].hash += digests[i]; }
        std::vector<std::uint64_t> mine;
        for (const ValuesHash& one : hashes_) { mine.push_back(one.hash); }
        const auto all = gather_values(rank_, mine, where);
        for (std::size_t i = 0; i < hashes_.size(); ++i) {
            hashes_[i].hash = 0;
            for (std::size_t rank = 0; rank < rank_.world_size(); ++rank) {
                hashes_[i].hash += all[rank * mine.size() + i];
            }
        }
        return std::move(hashes_);
    }

  private:
    Rank& rank_;
    std::vector<ValuesHash> hashes_;
    List<HeldPiece> pieces_;
    std::vector<std::size_t> of_;  // the hash that each piece counts in
};

/// Hashes the buffers of a model for whose role `wanted` holds.
template <class Wanted>
std::vector<ValuesHash> hash_held(const Model& model, const Wanted& wanted, SourceLocation where) {
    HashSum hashes(detail::rank_of(model, where));
    for (Group& group : spi::groups(model, where)) {
        group.require_whole("hash_values", where);
        for (const HeldMemory& values : group.held()) {
            if (wanted(values.role)) { hashes.add(group.geometry(), values); }
        }
    }
    return hashes.take(where);
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {
SHARDKIT_CORE_INLINE std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count,
                                                std::size_t bytes, SourceLocation where) {
    require_argument(count == parameter.part.numel(), where, "hash_of_part: '", parameter.name, "' with ", count,
                     " elements, expected ", parameter.part.numel());
    std::uint64_t hash = 0;
    with_word(bytes, [&]<class Word>(Word /*any*/) {
        DigestElements<Word>{part, count, 1, parameter.part, 0, 1, hash_seed(parameter), &hash}(0);
    });
    return hash;
}
}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE std::vector<ValuesHash> hash_values(const Model& model, SourceLocation where) {
    return detail::hash_held(
        model, [](detail::Role role) { return role == detail::Role::parameters || role == detail::Role::master; },
        where);
}
SHARDKIT_CORE_INLINE std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where) {
    return detail::hash_held(
        reduced.groups(where),
        [](detail::Role role) { return role == detail::Role::gradients || role == detail::Role::reduced; }, where);
}
SHARDKIT_CORE_INLINE std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where) {
    detail::HashSum hashes(detail::rank_of(optimizer.model(), where));
    spi::OptimizerContents(optimizer, where).for_each_state([&](const auto& group, const auto& each) {
        hashes.add(group.geometry(), each);
    });
    return hashes.take(where);
}

}  // namespace shardkit SHARDKIT_FACE
