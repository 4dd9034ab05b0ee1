// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit::detail {

/// Tracks whether a gathered full copy may be out of date because updates or gathers were captured in graphs. A graph
/// runs later than the host's flags say, perhaps many times. Therefore a capture gathers in its first window, and
/// outside of captures nothing is known of a copy once an update has been captured.
class CopyCaptures {
  public:
    /// Returns whether the copy may be out of date although the host has gathered it. `now` is the capture that a
    /// gather would be part of.
    bool hides(unsigned long long now) const noexcept {
        return gathered_in_ != now || (now == 0 && update_captured_);
    }
    void gathered(unsigned long long capture) noexcept { gathered_in_ = capture; }
    void updated(unsigned long long capture) noexcept { update_captured_ = update_captured_ || capture != 0; }
    bool update_captured() const noexcept { return update_captured_; }

  private:
    unsigned long long gathered_in_ = 0;  // the capture of the last gather, 0 if none
    bool update_captured_ = false;
};

}  // namespace shardkit::detail
