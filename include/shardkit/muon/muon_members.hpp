// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/muon/matrix_members.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/muon/muon_rule.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>

// Defines the members of Muon.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The ParamGroups of one part. What a group gives that the part does not have is for the other one's parameters.
inline std::vector<ParamGroup> muon_groups(const Model& model, const Matrices& matrices,
                                           const std::vector<ParamGroup>& given, bool of_matrices,
                                           SourceLocation where) {
    for (const ParamGroup& group : given) { validate(group, where); }
    const ParameterFilter is_matrix = are_matrices(model, matrices);
    bool any = false;
    for (const Group& in : spi::groups(model, where)) {
        for (const PlacedParameter& p : in.geometry().parameters) {
            if (is_matrix(in.path(), p.name) != of_matrices || p.frozen) { continue; }
            any = true;
            const std::size_t g = param_group_of(in.path(), p.name, given);
            if (g == no_param_group) { continue; }
            if (of_matrices ? !given[g].beta1 && !given[g].beta2 : !given[g].momentum) { continue; }
            throw_invalid_argument(where, "Muon: a ParamGroup gives ", of_matrices ? "betas" : "a momentum", " to '",
                                   in.path(), ".", p.name, "', which ", of_matrices ? "Muon" : "AdamW", " updates");
        }
    }
    require_argument(!of_matrices || any, where,
                     "Muon: no parameter is a matrix, expected one; AdamW trains the rest alone");
    std::vector<ParamGroup> groups = given;
    for (ParamGroup& group : groups) {
        if (of_matrices) {
            group.beta1.reset();
            group.beta2.reset();
        } else {
            group.momentum.reset();
        }
    }
    if (!of_matrices) { groups.insert(groups.begin(), {.matches = is_matrix, .updated_by = UpdatedBy::another}); }
    return groups;
}
inline AnyProducts<Stream> products_of(const Model& model, const AnyProducts<Stream>& given, SourceLocation where) {
    if (given) { return given; }
    const auto& rank = rank_of(model, where);
    if (!host_reads(rank.compute_stream())) {
        throw_usage_error(where, "Muon without a library of products on the engine ", rank.world().engine_name(),
                          ", whose matrices are a device's; expected one, gpu::CublasProducts say");
    }
    return AnyProducts<Stream>(HostProducts{});
}

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE MuonParts::MuonParts(const Model& model, const AnyProducts<Stream>& products,
                                          const MuonOptions& options, const AdamWOptions& rest,
                                          const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
                                          SourceLocation where)
    : matrices_(model, {&functions_of<rules::MuonRule, host::AnyKernels::Loops>, options},
                matrix_functions_of<rules::MuonRule, host::AnyKernels::Loops>, products_of(model, products, where),
                matrices, muon_groups(model, matrices, param_groups, true, where), where),
      rest_(model, {&functions_of<rules::AdamWRule, host::AnyKernels::Loops>, rest},
            muon_groups(model, matrices, param_groups, false, where), where) {}

}  // namespace shardkit::detail SHARDKIT_FACE
