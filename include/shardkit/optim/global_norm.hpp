// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {
struct NormTotal;
}  // namespace shardkit::detail
namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
class NormMemory;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {
class Reduced;
}

namespace shardkit SHARDKIT_CHECKED_BUILD {

/// The norm of a model's reduced gradients, the same number on every rank: a scalar in the engine's memory, which a
/// clip coefficient refers to and `value` reads. It stays there while fewer than norm_slots later ones are
/// taken.
class GlobalNorm {
  public:
    /// Of a step that takes none.
    GlobalNorm() noexcept = default;
    /// `total`: the slot that was taken last.
    GlobalNorm(const detail::NormMemory& memory, const double* total, std::uint64_t gradients) noexcept;

    /// The norm; waits for the compute stream, on an asynchronous engine the only synchronisation. As in PyTorch
    /// infinite after an infinite element and NaN after a NaN.
    /// @throws UsageError when so many norms were taken since that this one's memory was used again
    double value(SourceLocation where = SourceLocation::current()) const;
    /// Whether any gradient element of any rank is infinite or NaN; waits likewise.
    FoundInf found_inf(SourceLocation where = SourceLocation::current()) const;

    /// Sum of squares and non-finite count in the engine's memory, for kernels in the compute stream's order.
    /// @throws UsageError as value
    const double* data(SourceLocation where = SourceLocation::current()) const;
    /// Reduced::identity of the gradients that it is the norm of.
    std::uint64_t gradients() const noexcept { return gradients_; }

  private:
    detail::NormTotal read(SourceLocation where) const;

    const detail::NormMemory* memory_ = nullptr;  // null: none was taken
    const double* total_ = nullptr;
    std::uint64_t taken_ = 0;
    std::uint64_t gradients_ = 0;
};

}  // namespace shardkit SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {
/// Of gradients behind which any work may follow.
GlobalNorm global_norm(const Reduced& reduced, NormKind kind, SourceLocation where);
}  // namespace shardkit::detail

namespace shardkit {

/// sqrt of the sum of squares over every distinct trainable element of every group, after divisor and loss
/// scale. Squares are added within packs of 128 bytes of a parameter, and the packs' sums exactly (ExactSum). So
/// equal gradients have the same norm, to the last bit, under every policy and on any number of ranks.
/// With NormKind::infinity it is the largest magnitude instead, to clip by; its square lies in memory.
/// Order:   collective over the world: one all-reduce of 70 doubles, or of two.
/// Source:  torch.nn.utils.clip_grad_norm_
template <class X>
auto global_norm(const X& reduced, NormKind kind, SourceLocation where = SourceLocation::current()) {
    constexpr bool is_reduced = std::is_same_v<X, Reduced>;
    static_assert(is_reduced,
                  "global_norm takes reduced gradients: call reduce(std::move(accumulation), divisor) first");
    if constexpr (is_reduced) { return detail::global_norm(reduced, kind, where); }
}
template <class X>
auto global_norm(const X& reduced, SourceLocation where = SourceLocation::current()) {
    return global_norm(reduced, NormKind::two, where);
}

}  // namespace shardkit
