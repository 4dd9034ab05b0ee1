// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// Refuses a group whose blocks of 8 bits would depend on the mesh: a block is 32 elements of the whole parameter.
/// `of`: whether each parameter has a state.
/// @throws std::invalid_argument that names the parameter
inline void require_blocks(const GroupGeometry& group, std::span<const char> of, SourceLocation where) {
    const auto refuse = [&](const PlacedParameter& p, auto&&... why) {
        throw_invalid_argument(where, "states in blocks of 8 bits: '", group.path, ".", p.name, "' ", why...,
                               "; a block is ", Block8::block,
                               " elements of one parameter on every mesh: expected StateFormat::bf16 or full");
    };
    for (std::size_t n = 0; n < group.parameters.size(); ++n) {
        const PlacedParameter& p = group.parameters[n];
        if (of[n] == 0) { continue; }
        if (p.range.begin % Block8::block != 0) {
            refuse(p, "begins at element ", p.range.begin, " of its group's memory, which Packing::aligned avoids");
        }
        if (p.part.numel() == p.shape.numel()) { continue; }
        const bool whole_rows = p.shape.extents[p.shape.rank - 1] % Block8::block == 0;
        if (p.part.block() % Block8::block != 0 || !(whole_rows || p.tp.dimension == 0)) {
            const bool by_tp = p.tp.kind == TpPlacement::Kind::split;
            refuse(p, "is split over ", by_tp ? "tp into rows of " : "ep into experts' parts of ", p.part.block(),
                   " elements");
        }
    }
}

/// How a rule's states are stored, as a value.
struct StateKind {
    StateFormat format = StateFormat::full;
    std::uint32_t squares = 0;  ///< which states are squares, a bit for each
    /// Of blocks of 8 bits require_blocks; null for other formats, with which it is not compiled.
    void (*require)(const GroupGeometry& group, std::span<const char> of, SourceLocation where) = nullptr;
};
template <class Rule>
StateKind state_kind() {
    if constexpr (StorageOf<Rule>::type::format == StateFormat::block8) {
        return {StateFormat::block8, squares_of<Rule>(), &require_blocks};
    } else {
        return {StorageOf<Rule>::type::format, squares_of<Rule>()};
    }
}

}  // namespace shardkit::detail
