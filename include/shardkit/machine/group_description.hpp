// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/policy/chosen_parameters.hpp>
#include <shardkit/policy/group_mesh.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/placement_table.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/policy/state_format.hpp>

namespace shardkit::planner {

/// What a plan assumes about the trainer.
struct PlanOptions {
    std::size_t microbatches = 1;            ///< number per step
    std::size_t in_flight = 2;               ///< RankOptions::in_flight: prefetch depth + 1
    OptimizerStates optimizer_states = 2;    ///< AdamW's, as nobody else says; `{2, StateFormat::bf16}`, say
    std::size_t windows_per_microbatch = 2;  ///< one in forward, one in backward
    std::size_t norms_per_step = 1;          ///< global_norm calls per step
    std::size_t offload_slot_bytes = default_offload_slot_bytes;  ///< RankOptions::offload_slot_bytes
    std::size_t ranks_per_host = 0;  ///< k: ranks 0 .. k - 1 on the first host, and so on; 0: one host
    engine::Traits engine{};         ///< Engine::traits; a plan of groups that exist takes their engine's
};

/// What the planner needs to know about one group. It is made from types and shapes, without any rank or memory.
struct GroupDescription {
    std::string_view path;         ///< must outlive the description
    std::size_t numel = 0;         ///< distinct elements of all parameters, over all of tp
    std::uint64_t alike = 0;       ///< groups with an equal key share slots; see detail::likeness
    std::size_t buffer_numel = 0;  ///< of the full flat buffer, padding included
    std::size_t shard_numel = 0;
    std::size_t shards = 1;
    std::size_t replicas = 1;  ///< number of data ranks that hold the same shard
    std::size_t tp = 1;
    std::size_t ep = 1;                 ///< number of data ranks that share its experts
    bool experts = false;               ///< its parameters are ep::Split
    IndexRange tp_sum{};                ///< range of the full buffer that is summed over tp
    std::size_t overwritten_numel = 0;  ///< elements of the full gradients that are not zeroed
    std::size_t parameter_scales = 0;   ///< number of them where gathered codes have one for each parameter
    rules::PolicyValues policy;
    detail::ElementSizes sizes;
    bool trainable = true;
    GradientRelease gradient_release = GradientRelease::never;
    Offload offload = Offload::none;
    std::optional<std::size_t> windows_per_microbatch{};  ///< replaces the one of PlanOptions
    std::optional<OptimizerStates> optimizer_states{};    ///< likewise: those of the group's optimizers

    /// Returns the number of microbatches that the policy's slices make on each rank; `otherwise` where it has none.
    constexpr std::size_t microbatches_of_slices(std::size_t otherwise) const noexcept {
        return policy.slices == 0 ? otherwise : policy.slices / data_ranks();
    }
    /// Returns of how many ranks' tokens, one behind the other, the group's gradients of a microbatch are kept apart:
    /// of those that share its experts where each rank adds up several slices before they are reduced, as theirs are
    /// neighbours in the tree then; otherwise 1.
    constexpr std::size_t sources() const noexcept {
        return policy.accumulate == Accumulate::unreduced && microbatches_of_slices(1) > 1 ? ep : 1;
    }
    /// Returns the number of ranks whose tokens are in the sum of a gradient: those of dp x cp.
    constexpr std::size_t data_ranks() const noexcept { return shards * replicas * ep; }
    /// Returns the number of pieces into which shards are cut across groups.
    constexpr std::size_t pieces() const noexcept {
        return policy.across_groups.states == Placement::sharded ? replicas : 1;
    }
    /// Returns the number of parts of that extent in the full buffer.
    constexpr std::size_t parts_of(detail::Extent extent) const noexcept {
        return extent == detail::Extent::piece ? shards * pieces() : extent == detail::Extent::shard ? shards : 1;
    }
    /// Returns whether an optimizer's states and masters of the group lie in host memory.
    constexpr bool offloads() const noexcept { return trainable && offload != Offload::none; }
    /// Returns the number of elements that one rank holds of that extent.
    constexpr std::size_t numel_of(detail::Extent extent) const noexcept {
        return extent == detail::Extent::scales ? scale_bytes(detail::Extent::full) - parameter_scales * sizeof(float)
               : extent == detail::Extent::shard ? shard_numel
               : extent == detail::Extent::piece ? shard_numel / pieces()
                                                 : buffer_numel;
    }
    /// Returns the bytes of the scales beside codes of that extent: of their blocks, or of each parameter, with the
    /// largest magnitudes that all ranks give for it.
    constexpr std::size_t scale_bytes(detail::Extent extent) const noexcept {
        if (!sizes.codes.gathered) { return 0; }
        const std::size_t block = sizes.codes.block;
        return sizeof(float) * (block == 0 ? (1 + shards) * parameter_scales : numel_of(extent) / block);
    }
    friend constexpr bool operator==(const GroupDescription&, const GroupDescription&) noexcept = default;
};

}  // namespace shardkit::planner

namespace shardkit {

namespace detail {
using planner::GroupDescription;

/// Returns a hash that is equal for groups whose buffers have equal sizes on every mesh: the same shapes, element
/// types and split. Such groups share slots. Other groups do not, even where their padded sizes happen to be equal.
constexpr std::uint64_t likeness(std::span<const PlacedParameter> parameters, Packing packing,
                                 const rules::PolicyValues& policy, const ElementSizes& sizes) noexcept {
    Fnv alike;
    for (const PlacedParameter& p : parameters) {
        alike.add(std::span(p.shape.extents).first(p.shape.rank));
        alike.add(p.split_over_tp() ? 1 + p.tp.dimension : 0);
        if (p.experts) { alike.add(Ep::name); }
    }
    alike.add(static_cast<std::uint64_t>(packing));
    alike.add(policy.name);
    for (const std::string_view axis : policy.shard_axes.span()) { alike.add(axis); }
    for (const std::size_t bytes : {sizes.gather, sizes.gradient, sizes.reduction, sizes.master}) {
        alike.add(bytes);
    }
    alike.add(sizes.splits_master ? 1 : 0);
    alike.add(sizes.codes.gathered ? 1 + sizes.codes.block : 0);
    return alike.hash;
}

/// Checks that the element types support this choice of master weights and rounding, and that a group of opaque bytes
/// is frozen.
constexpr void check_types(std::string_view path, const PrecisionValues& types,
                           std::span<const PlacedParameter> parameters, MasterWeights master,
                           const std::optional<StochasticRounding>& rounding, SourceLocation where) {
    const auto require = [&](bool holds, const auto&... text) { require_argument(holds, where, "'", path, text...); };
    for (const PlacedParameter& p : parameters) {
        require(!types.opaque || p.frozen, "' parameter '", p.name,
                "': elements of std::byte that are trained, expected Frozen: opaque bytes have no gradient");
    }
    require(master != MasterWeights::split || types.splits_master, "': MasterWeights::split with ",
            name(types.master), " masters of ", name(types.gather),
            " parameters, expected fp32 masters of bf16 ones");
    require(master != MasterWeights::none || !types.has_master || types.drops_master, "': MasterWeights::none with ",
            name(types.master), " masters of ", name(types.gather),
            " parameters, expected kept: updates are computed in the master's arithmetic");
    const bool kept = types.has_master && master != MasterWeights::none;
    require(!rounding || (!kept && size_of(types.gather) == 2), "': stochastic rounding of ", name(types.gather),
            " parameters ", kept ? "with" : "without",
            " a master, expected 16-bit parameters and MasterWeights::none");
}

/// Checks what a group's policy, element types and options ask of each other: that shards may be padded, that codes
/// can be made of masters, block by block, and that slices can be added along one tree.
constexpr void check_described(const GroupDescription& group, Packing packing, const AxisGrid& mesh,
                               SourceLocation where) {
    const rules::PolicyValues& policy = group.policy;
    const ElementSizes& sizes = group.sizes;
    const auto require = [&](bool holds, const auto&... text) {
        require_argument(holds, where, "'", group.path, "': ", text...);
    };
    require(policy.optimizer != Placement::sharded || packing != Packing::exact, "Packing::exact given, but ",
            policy.name, " shards; expected aligned or packed");
    if (sizes.codes.gathered) {
        require(group.trainable,
                "gathered codes of a group that is frozen whole, which has no masters to make them of; expected a "
                "trained parameter, or the codes as std::byte");
        require(packing == Packing::aligned,
                "gathered codes, and a packing that puts elements of two parameters into one block; expected "
                "Packing::aligned");
        require(policy.across_groups.states != Placement::sharded, "gathered codes under policy ", policy.name,
                ", which shards masters across groups; expected one that replicates them, as HybridShard");
        require(group.offload == Offload::none,
                "gathered codes, and an Offload of the masters that they are made of; expected Offload::none");
    }
    if (policy.slices == 0) { return; }
    const auto require_sliced = [&](bool holds, const auto&... text) {
        require(holds, "policy '", policy.name, "' with ", policy.slices, " slices", text...);
    };
    const std::size_t ranks = mesh.extent(Dp::name);
    const std::size_t cp = mesh.extent(Cp::name);
    require_sliced(std::has_single_bit(ranks) && policy.slices % ranks == 0, " on ", ranks,
                   " data-parallel ranks, expected a power of two that divides them");
    require_sliced(cp == 1, " and cp = ", cp, ", expected 1: ranks of cp add parts of one slice");
    require_sliced(group.ep == 1 || sizes.gradient >= sizes.reduction, ", gradients of ", sizes.gradient,
                   " bytes and ep = ", group.ep, ", expected gradients of the sums' ", sizes.reduction,
                   " bytes: one that has the slices of several ranks would be rounded once for all");
    require_sliced(!sizes.rounds_sums, " and a reduction type of ", sizes.reduction,
                   " bytes, expected fp32 or fp64: where sums are rounded would depend on the ranks");
}

/// The description of a group, with the layout of its flat buffer.
struct DescribedGroup {
    GroupDescription group;
    layout::FlatLayout layout;
};

/// Lays out a group of which path, policy, sizes and options are known on a mesh, and places its parameters as the
/// ranks with index `tp_index` along tp and `ep_index` among those that share its experts hold them. Existing and
/// planned groups both use this function.
/// @pre     the shapes were checked
/// @throws  as GroupMesh, place_parameters and check_described
constexpr DescribedGroup describe_on_mesh(GroupDescription group, std::span<PlacedParameter> parameters,
                                          const AxisGrid& mesh, std::size_t tp_index, std::size_t ep_index,
                                          std::size_t alignment, Packing packing, SourceLocation where) {
    group.experts = parameters[0].experts;
    const GroupMesh ranks(mesh, group.policy, group.experts, group.path, where);
    group.shards = ranks.ranks(Over::shards);
    group.replicas = ranks.ranks(Over::replicas);
    group.tp = ranks.ranks(Over::tp);
    group.ep = ranks.ep();
    const layout::FlatLayout layout = place_parameters(
        group.path, parameters,
        {group.tp, tp_index, group.ep, ep_index, group.parts_of(Extent::piece), alignment, packing}, where);
    group.buffer_numel = layout.buffer_numel();
    group.shard_numel = layout.shard_numel() * group.pieces();
    for (const PlacedParameter& p : parameters) {
        group.numel += p.shape.numel();
        if (p.leaves_unzeroed()) { group.overwritten_numel += p.range.size(); }
    }
    group.tp_sum = tp_sum(parameters, group.tp);
    group.trainable = trainable(parameters);
    if (group.sizes.codes.gathered && group.sizes.codes.block == 0) { group.parameter_scales = parameters.size(); }
    check_described(group, packing, mesh, where);
    group.alike = likeness(parameters, packing, group.policy, group.sizes);
    return {group, layout};
}

/// Describes a group of these parameters and options, as the first rank of a mesh has it.
template <class Precision, class Options>
constexpr GroupDescription describe_first(std::string_view path, std::span<PlacedParameter> parameters,
                                          const AxisGrid& mesh, const Options& options, SourceLocation where) {
    constexpr const auto& types = precision_values<Precision>;
    check_types(path, types, parameters, options.master, options.stochastic_rounding, where);
    return describe_on_mesh({.path = path,
                             .policy = rules::policy_values(options.policy, mesh.extent(Dp::name), where),
                             .sizes = types.sizes_with(options.master),
                             .gradient_release = options.gradient_release,
                             .offload = options.offload},
                            parameters, mesh, 0, 0, layout::alignment_for(types.narrowest), options.packing, where)
        .group;
}

}  // namespace detail

/// Returns the description of the group that Sharded<ParamOrGroup, Policy, ..., Precision> with these options would
/// make on a mesh, before it exists. Frozen parameters, packing and master weights are taken from the options.
/// Cost:    arithmetic only; works in constant expressions, and for meshes of any size on any machine.
/// @throws  std::invalid_argument when the policy's shard group does not divide dp, tp does not divide an extent that
///          it splits, or no group can have these options
template <class ParamOrGroup, ShardPolicy Policy,
          class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
constexpr planner::GroupDescription describe_group(std::string_view path, const TensorsOf<ParamOrGroup>& tensors,
                                                   const AxisGrid& mesh,
                                                   const ShardedOptions<GroupOf<ParamOrGroup>, Policy>& options,
                                                   SourceLocation where = SourceLocation::current()) {
    tensors.check(path, where);
    auto parameters = detail::chosen_parameters<GroupOf<ParamOrGroup>, Policy>(path, tensors, options, where);
    return detail::describe_first<Precision>(path, parameters, mesh, options, where);
}
/// Returns the description of a group with no other options than a policy.
template <class ParamOrGroup, ShardPolicy Policy,
          class Precision = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
constexpr planner::GroupDescription describe_group(std::string_view path, const TensorsOf<ParamOrGroup>& tensors,
                                                   const AxisGrid& mesh, const Policy& policy = {},
                                                   SourceLocation where = SourceLocation::current()) {
    return describe_group<ParamOrGroup, Policy, Precision>(
        path, tensors, mesh, ShardedOptions<GroupOf<ParamOrGroup>, Policy>{policy}, where);
}

}  // namespace shardkit
