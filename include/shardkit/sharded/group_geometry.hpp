// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/machine/group_rows.hpp>
#include <shardkit/param/params.hpp>

namespace shardkit::detail {

/// Where a piece of a group lies: in which shard, and which of its pieces it is.
struct PiecePlace {
    std::size_t shard = 0;
    std::size_t piece = 0;

    friend bool operator==(const PiecePlace&, const PiecePlace&) noexcept = default;
};

/// The geometry of a group on one rank of a mesh: its description, its parameters and the rank's position. It has no
/// template parameters, so that the code that uses it is compiled once for all groups.
struct GroupGeometry : GroupDescription {
    std::string path;  ///< the group's path; `description()` returns a description that refers to it
    GroupRows table;
    std::optional<StochasticRounding> stochastic_rounding;  ///< with a seed of this group alone
    List<PlacedParameter> parameters;
    std::vector<std::size_t> by_name;        ///< numbers of the parameters, sorted by name
    std::vector<std::string> owned_names;    ///< the names that `parameters` refers to; empty for types
    std::span<const ParameterName> aliases;  ///< further names of parameters, given by types
    std::size_t shard_index = 0;
    std::size_t replica_index = 0;  ///< number of this rank among those that hold the same shard
    std::size_t tp_index = 0;
    std::size_t ep_index = 0;  ///< number of this rank among those that share the group's experts
    IndexRange own;            ///< this rank's shard within the full buffer
    IndexRange piece;          ///< the piece of it that is this rank's across groups; all of it where it is not cut
    IndexRange updated;        ///< elements that this rank's optimizer updates: all, its shard, or its piece

    GroupGeometry() = default;
    GroupGeometry(GroupGeometry&&) noexcept = default;  // no copy: it would refer to the names of the original
    GroupGeometry& operator=(GroupGeometry&&) noexcept = default;

    /// Returns the description that plans are made from. It refers to this group's path.
    GroupDescription description() const {
        GroupDescription group = *this;
        group.path = path;
        return group;
    }
    /// Returns the arithmetic type of updates.
    ElementType arithmetic() const noexcept {
        return sizes.state == sizeof(double) ? ElementType::fp64 : ElementType::fp32;
    }
    /// Returns whether the optimizer updates master weights instead of the gathered parameters.
    bool keeps_master() const noexcept { return table.find(Role::master) != nullptr && !sizes.splits_master; }
    /// Returns whether master weights are the parameters and 16 bits beside each.
    bool splits_master() const noexcept { return table.find(Role::master) != nullptr && sizes.splits_master; }
    /// Returns the range of the full buffer that this rank holds in a buffer of that extent.
    IndexRange range(Extent extent) const noexcept {
        return extent == Extent::shard ? own : extent == Extent::piece ? piece : IndexRange{0, buffer_numel};
    }
    /// Returns the place of this rank's piece.
    PiecePlace place() const noexcept { return {shard_index, replica_index % pieces()}; }
    /// Returns the range of a piece in the full buffer.
    IndexRange range_of(PiecePlace at) const noexcept {
        return shard_range(at.shard * pieces() + at.piece, numel_of(Extent::piece), buffer_numel);
    }
    /// Returns how many ranks hold the same elements of a parameter in buffers of that extent.
    std::size_t holders(std::size_t parameter, Extent extent) const noexcept {
        const std::size_t of_tp = parameters[parameter].split_over_tp() ? 1 : tp;
        return of_tp * (extent == Extent::piece ? 1 : replicas) * (extent == Extent::full ? shards : 1);
    }
    /// Returns this rank's number among them, which is 0 on exactly one. Where the buffer holds several ranks'
    /// pieces, it is one with piece `owner`.
    std::size_t replica(std::size_t parameter, Extent extent, PiecePlace owner = {}) const noexcept {
        const std::size_t of_tp = parameters[parameter].split_over_tp() ? 0 : tp_index;
        if (extent == Extent::piece) { return of_tp; }
        const std::size_t of_shard = (replica_index + replicas - owner.piece) % replicas + replicas * of_tp;
        return extent == Extent::shard ? of_shard : (shard_index + shards - owner.shard) % shards + shards * of_shard;
    }
    /// Returns this rank's number among the data ranks.
    std::size_t data_index() const noexcept { return (replica_index * shards + shard_index) * ep + ep_index; }
    /// Returns the range of shard `index` in the full buffer.
    IndexRange shard(std::size_t index) const noexcept { return shard_range(index, shard_numel, buffer_numel); }

    /// Returns the place in `by_name` of the first name that is not before this one.
    std::vector<std::size_t>::const_iterator place_by_name(std::string_view name) const {
        return std::lower_bound(by_name.begin(), by_name.end(), name,
                                [&](std::size_t p, std::string_view wanted) { return parameters[p].name < wanted; });
    }
    /// Returns the number of the parameter with that name or alias. Cost: logarithmic in the number of parameters.
    /// @throws std::invalid_argument when there is none
    std::size_t number_of(std::string_view name, SourceLocation where) const {
        const auto at = place_by_name(name);
        if (at != by_name.end() && parameters[*at].name == name) { return *at; }
        for (const ParameterName& alias : aliases) {
            if (alias.name == name) { return alias.number; }
        }
        std::string known;
        for (const PlacedParameter& p : parameters) { known += concat(known.empty() ? "'" : ", '", p.name, "'"); }
        throw_invalid_argument(where, "'", path, "': no parameter is named '", name, "', expected one of ", known);
    }
    /// Returns that number after a check.
    /// @throws std::invalid_argument when there are fewer parameters
    template <std::integral Integer>
    std::size_t number_of(Integer number, SourceLocation where) const {
        if (std::cmp_greater_equal(number, 0) && std::cmp_less(number, parameters.size())) {
            return static_cast<std::size_t>(number);
        }
        throw_invalid_argument(where, "'", path, "': no parameter has the number ", number,
                               ", expected one from 0 to ", parameters.size() - 1);
    }
};

}  // namespace shardkit::detail
