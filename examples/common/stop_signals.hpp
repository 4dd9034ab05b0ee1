// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>

namespace program {

/// From here to the end of the scope, the first SIGINT or SIGTERM is a wish that the program ends by itself soon; a
/// second one ends it at once, as it would have without this. A signal that the caller of the program ignores stays
/// ignored. One at a time.
class StopSignals {
  public:
    StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;
    ~StopSignals();

    /// The signal that came; 0 before. For any thread.
    static int came() noexcept;
    /// "SIGINT"
    static const char* name(int signal) noexcept { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

  private:
    static constexpr std::array signals_{SIGINT, SIGTERM};
    std::array<struct sigaction, 2> before_{};
};

}  // namespace program
