// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit::detail {
struct ModelName;
struct LossScaleUse;
struct LossScaleMemory;
}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

class Reduced;

/// A factor that protects fp16 gradients from underflow. Multiply the loss by it; `reduce` divides the gradients by
/// it, and the optimizer's step skips the update on overflow and adapts the factor.
///     LossScale loss_scale{rank, {.initial = 1024}};
/// It lives in the engine's memory, so that a step needs no synchronisation: a kernel that computes the loss reads
/// `data()`, the host `value()`. Make one for each rank and model; it must outlive what is reduced with it.
class LossScale {
  public:
    /// @throws std::invalid_argument, see validate
    explicit LossScale(Rank& rank, LossScaleOptions options = {}, SourceLocation where = SourceLocation::current());
    LossScale(LossScale&& other) noexcept;
    LossScale& operator=(LossScale&& other) noexcept;
    ~LossScale();

    /// Returns the factor. Waits for the steps that were given to the compute stream.
    double value(SourceLocation where = SourceLocation::current()) const { return state(where).value(); }
    /// Returns the number of steps without overflow since the scale last changed. Waits likewise.
    std::uint32_t clean_steps(SourceLocation where = SourceLocation::current()) const {
        return state(where).clean_steps();
    }
    /// Returns whether the last step that used it found an overflow and therefore changed only the scale. Waits
    /// likewise.
    bool skipped(SourceLocation where = SourceLocation::current()) const {
        return state(where).last() == FoundInf::yes;
    }
    /// Returns the number of skipped steps since the scale was made. Waits likewise. Not part of a checkpoint.
    std::uint64_t skipped_steps(SourceLocation where = SourceLocation::current()) const {
        return state(where).skipped_steps();
    }

    /// Returns all of its numbers. Waits likewise.
    LossScaleState state(SourceLocation where = SourceLocation::current()) const;
    /// Continues from these numbers, as behind a load; see LossScaleState::restored.
    void restore(double value, std::uint32_t clean_steps, std::uint32_t overflows = 0,
                 SourceLocation where = SourceLocation::current());

    /// Returns the numbers in the engine's memory, where kernels read them in the order of the compute stream.
    const LossScaleState* data() const noexcept;

  private:
    friend Reduced;
    /// @throws UsageError when it was moved from
    detail::LossScaleMemory& memory(SourceLocation where) const;
    /// Counts one more step that uses it.
    detail::LossScaleUse use(SourceLocation where);
    void bind(const detail::ModelName& model, SourceLocation where);

    detail::Owned<detail::LossScaleMemory> memory_;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/step/loss_scale_members.hpp>
#endif
