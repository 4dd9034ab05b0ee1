// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include <shardkit/policy/placement_table.hpp>

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

/// Whether a group's full copy is behind its shards.
/// A graph is launched when the host's flags are long about something else: one that is captured gathers in its first
/// window, and outside of captures nothing is known of a copy after an update was captured.
class Staleness {
  public:
    /// `gather`: the row that brings the copy up to date, null where an update renews all of it; `shown`: in a
    /// window; `now`: the capture that a gather would be part of.
    bool is_stale(const CollectiveRow* gather, bool shown, unsigned long long now) const noexcept {
        if (gather == nullptr) { return false; }
        if (stale_ || shown || gather->when == When::each_window) { return stale_; }
        return gathered_in_ != now || (now == 0 && update_captured_);
    }
    void set() noexcept { stale_ = true; }
    void gathered(unsigned long long capture) noexcept {
        stale_ = false;
        gathered_in_ = capture;
    }
    void updated(unsigned long long capture) noexcept {
        stale_ = true;
        update_captured_ = update_captured_ || capture != 0;
    }
    bool update_captured() const noexcept { return update_captured_; }

  private:
    bool stale_ = false;
    unsigned long long gathered_in_ = 0;  // of the last gather
    bool update_captured_ = false;
};

}  // namespace shardkit::detail
