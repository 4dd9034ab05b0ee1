// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

namespace shardkit::detail {

/// A stream whose work can be captured in a graph; `capture()` names the capture that it is part of, 0: none.
template <class S>
concept Captures = requires(const S stream) {
    { stream.capture() } -> std::same_as<unsigned long long>;
};

/// The graph capture that a stream's work is given to at the moment, 0: none.
template <class Stream>
unsigned long long capture_of(const Stream& stream) noexcept {
    if constexpr (Captures<Stream>) {
        return stream.capture();
    } else {
        return 0;
    }
}

/// What graph captures leave open of a full copy that is gathered after updates. A graph is launched when the host's
/// flags are long about something else: one that is captured gathers in its first window, and outside of captures
/// nothing is known of a copy after an update was captured.
class CopyCaptures {
  public:
    /// Whether a copy may be out of date though the host has gathered it. `now`: the capture that a gather would be
    /// part of.
    bool hides(unsigned long long now) const noexcept {
        return gathered_in_ != now || (now == 0 && update_captured_);
    }
    void gathered(unsigned long long capture) noexcept { gathered_in_ = capture; }
    void updated(unsigned long long capture) noexcept { update_captured_ = update_captured_ || capture != 0; }
    bool update_captured() const noexcept { return update_captured_; }

  private:
    unsigned long long gathered_in_ = 0;  // of the last gather
    bool update_captured_ = false;
};

}  // namespace shardkit::detail
