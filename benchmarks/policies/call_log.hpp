// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

namespace benchmarks::policies {

/// What a model's collectives do on one rank. A step's addresses are the same every time, so that its collectives can
/// be made again without the step, on the same buffers.
class CallLog {
  public:
    /// Makes the call, or leaves it out.
    template <class Call>
    void make(const Call& call) {
        if (silent_) { return; }
        if (recording_) { calls_.emplace_back(call); }
        call();
    }
    /// f() without communication.
    template <class F>
    void silently(F f) {
        silent_ = true;
        f();
        silent_ = false;
    }
    /// f(), and remembers its collectives in place of those before.
    template <class F>
    void record(F f) {
        calls_.clear();
        recording_ = true;
        f();
        recording_ = false;
    }
    /// Makes the remembered collectives again, back to back.
    void replay() const {
        for (const auto& call : calls_) { call(); }
    }
    std::size_t size() const noexcept { return calls_.size(); }

  private:
    bool silent_ = false;
    bool recording_ = false;
    std::vector<std::function<void()>> calls_;
};

}  // namespace benchmarks::policies
