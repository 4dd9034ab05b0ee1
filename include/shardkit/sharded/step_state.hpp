// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/core/error.hpp>

namespace shardkit::detail {

/// Where a group stands within a training step, so that verbs in an order without meaning are refused.
/// idle -> accumulating -> reduced -> idle; skipped stands beside reduced: no gradient in this step.
class StepState {
  public:
    void begin(std::string_view path, SourceLocation where) {
        if (phase_ != Phase::idle) {
            throw_usage_error(where, "'", path, "': a second accumulation was started before the first one ended");
        }
        if (out_) {
            throw_usage_error(where, "'", path,
                              "': a step was started while a gradient handle of the last one is out");
        }
        phase_ = Phase::accumulating;
        dropped_ = false;
    }
    void hand_out(std::string_view path, std::string_view verb, SourceLocation where) {
        require_accumulating(path, verb, where);
        if (out_) {
            throw_usage_error(where, "'", path, "': ", verb,
                              "() again before the last handle was added; keep one handle");
        }
        out_ = true;
    }
    void take_back() noexcept { out_ = false; }
    /// @throws UsageError when the handle has outlived its accumulation
    void check_add(std::string_view path, SourceLocation where) const { require_accumulating(path, "add", where); }
    /// A handle went out of scope unadded: what it held is lost, and the step's sum with it.
    void drop() noexcept {
        out_ = false;
        dropped_ = true;
    }
    void finish(std::string_view path, std::size_t microbatches, SourceLocation where) {
        require_accumulating(path, "reduce", where);
        if (out_) { throw_usage_error(where, "'", path, "': reduce() while a gradient handle is still out; add it"); }
        if (dropped_) { throw_usage_error(where, "'", path, "': a gradient handle was dropped without being added"); }
        if (microbatches == 0) {
            throw_usage_error(where, "'", path,
                              "': reduce() before any gradient was added; call add, add_zero or skip");
        }
        phase_ = Phase::reduced;
    }
    void check_skip(std::string_view path, std::size_t microbatches, SourceLocation where) const {
        require_accumulating(path, "skip", where);
        if (microbatches > 0 || out_ || dropped_) {
            throw_usage_error(where, "'", path, "': skip() after gradients were handed out in this step");
        }
    }
    void skip() noexcept { phase_ = Phase::skipped; }
    void assume_reduced() noexcept { phase_ = Phase::reduced; }
    void end() noexcept { phase_ = Phase::idle; }

    /// Whether a step or a handle refers to the group.
    bool busy() const noexcept { return out_ || phase_ != Phase::idle; }
    bool accumulating() const noexcept { return phase_ == Phase::accumulating; }
    bool reduced() const noexcept { return phase_ == Phase::reduced; }
    bool skipped() const noexcept { return phase_ == Phase::skipped; }

  private:
    enum class Phase : std::uint8_t { idle, accumulating, reduced, skipped };

    void require_accumulating(std::string_view path, std::string_view verb, SourceLocation where) const {
        if (phase_ == Phase::accumulating) { return; }
        throw_usage_error(where, "'", path, "': ", verb,
                          phase_ == Phase::idle      ? "() outside of an accumulation"
                          : phase_ == Phase::skipped ? "() after the group was skipped"
                                                     : "() after the last microbatch was reduced");
    }

    Phase phase_ = Phase::idle;
    bool out_ = false;      // a handle is with the user
    bool dropped_ = false;  // one was lost in this step
};

}  // namespace shardkit::detail
