// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit {

/// Where a group stands within a training step, so that verbs in an order without meaning are refused.
/// idle -> accumulating -> reduced -> idle; skipped stands beside reduced: no gradient in this step.
class StepState {
  public:
    void begin(std::string_view path) {
        if (phase_ != Phase::idle) {
            throw UsageError(
                detail::concat("'", path, "': a second accumulation was started before the first one ended"));
        }
        phase_ = Phase::accumulating;
        handle_ = Handle::none;
    }
    void hand_out(std::string_view path) {
        require_accumulating(path, "gradients()");
        if (handle_ == Handle::out) {
            throw UsageError(
                detail::concat("'", path, "': gradients() again before the last handle was added; keep one handle"));
        }
        handle_ = Handle::out;
    }
    void take_back() noexcept { handle_ = Handle::none; }
    /// A handle went out of scope unadded: what it held is lost, and the sum with it.
    void drop() noexcept { handle_ = Handle::dropped; }
    void finish(std::string_view path, std::size_t microbatches) {
        require_accumulating(path, "reduce()");
        if (handle_ == Handle::out) {
            throw UsageError(detail::concat("'", path, "': reduce() while a gradient handle is still out; add it"));
        }
        if (handle_ == Handle::dropped) {
            throw UsageError(detail::concat("'", path, "': a gradient handle was dropped without being added"));
        }
        if (microbatches == 0) {
            throw UsageError(
                detail::concat("'", path, "': reduce() before any gradient was added; call add, add_zero or skip"));
        }
        phase_ = Phase::reduced;
    }
    void skip(std::string_view path, std::size_t microbatches) {
        require_accumulating(path, "skip()");
        if (microbatches > 0 || handle_ == Handle::out) {
            throw UsageError(detail::concat("'", path, "': skip() after gradients were handed out in this step"));
        }
        phase_ = Phase::skipped;
    }
    void assume_reduced() noexcept { phase_ = Phase::reduced; }
    void end() noexcept { phase_ = Phase::idle; }

    bool accumulating() const noexcept { return phase_ == Phase::accumulating; }
    bool skipped() const noexcept { return phase_ == Phase::skipped; }

  private:
    enum class Phase : std::uint8_t { idle, accumulating, reduced, skipped };
    enum class Handle : std::uint8_t { none, out, dropped };

    void require_accumulating(std::string_view path, std::string_view verb) const {
        if (phase_ == Phase::accumulating) { return; }
        throw UsageError(detail::concat("'", path, "': ", verb,
                                        phase_ == Phase::idle      ? " outside of an accumulation"
                                        : phase_ == Phase::skipped ? " after the group was skipped"
                                                                   : " after the last microbatch was reduced"));
    }

    Phase phase_ = Phase::idle;
    Handle handle_ = Handle::none;
};

}  // namespace shardkit
