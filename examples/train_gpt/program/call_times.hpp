// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include <shardkit/comm/journal.hpp>

#include "names.hpp"

namespace train_gpt {

/// What a rank's calls for its groups take, gathers, reductions and the norm's sum, waits for other ranks included;
/// not what the program communicates itself, over tp or cp. Of engines whose calls return when they are done.
class CallTimes final : public sk::recorder::CallObserver {
  public:
    /// While it lives, a rank's calls are timed, from 0 on.
    class Scope {
      public:
        Scope(sk::engine::Journal& journal, CallTimes& times) : journal_(journal), before_(journal.observe(&times)) {
            times.seconds_ = 0;
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() { journal_.observe(before_); }

      private:
        sk::engine::Journal& journal_;
        sk::recorder::CallObserver* before_;
    };

    bool before(const sk::recorder::ObservedCall&) override {
        began_ = Clock::now();
        return true;
    }
    void after(const sk::recorder::ObservedCall& seen) override {
        if (seen.call.subject != nullptr) {
            seconds_ += std::chrono::duration<double>(Clock::now() - began_).count();
        }
    }
    double seconds() const noexcept { return seconds_; }

  private:
    using Clock = std::chrono::steady_clock;

    Clock::time_point began_;
    double seconds_ = 0;
};

}  // namespace train_gpt
