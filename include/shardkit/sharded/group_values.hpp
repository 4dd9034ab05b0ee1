// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <shardkit/layout/flat_layout.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/policy/sharded_options.hpp>

namespace shardkit::detail {

/// The facts that the types of a group and its policy give, as values.
struct GroupValues {
    std::string_view path;
    std::span<const PlacedParameter> parameters;            ///< not yet placed in the flat buffer
    std::span<const std::span<const std::size_t>> fixed{};  ///< the extents that each one's type fixes
    std::span<const ParameterName> all_names{};             ///< of types, with aliases; empty for a TensorList
    rules::PolicyValues policy{};
    Packing packing = Packing::aligned;
    MasterWeights master = MasterWeights::kept;
    std::optional<StochasticRounding> stochastic_rounding{};
    GradientRelease gradient_release = GradientRelease::never;
    Offload offload = Offload::none;
};

}  // namespace shardkit::detail
