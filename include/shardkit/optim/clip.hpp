// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/global_norm.hpp>

namespace shardkit {

namespace detail {
/// Refuses what gradients cannot be clipped to.
inline void validate_max_norm(double max_norm, std::string_view verb, SourceLocation where) {
    if (max_norm > 0) { return; }
    throw_invalid_argument(where, verb, ": max_norm is ", number_text(max_norm), ", expected a number > 0, or ",
                           "unlimited");
}
}  // namespace detail

/// min(1, max_norm / (norm + 1e-6)); always multiplied, without a branch on whether it clips. A NaN norm makes
/// it NaN, and so the parameters.
/// Source:  torch.nn.utils.clip_grad_norm_
/// `max_norm`: unlimited for a coefficient of one.
/// @throws  std::invalid_argument unless max_norm is above zero
inline ClipCoefficient clip(const GlobalNorm& norm, double max_norm,
                            SourceLocation where = SourceLocation::current()) {
    detail::validate_max_norm(max_norm, "clip", where);
    return {norm.data(where), max_norm, norm.gradients()};
}

}  // namespace shardkit
