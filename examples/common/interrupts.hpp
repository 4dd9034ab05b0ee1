// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

namespace program {

/// From here to the end of the scope, SIGINT and SIGTERM let `last_words(name of the signal)` run once, on a thread
/// of its own while the program goes on, and then end the program as they would have without it. A signal that the
/// caller of the program ignores stays ignored. One at a time.
class Interrupts {
  public:
    explicit Interrupts(std::function<void(const std::string&)> last_words);
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;
    /// Waits for last words that have begun, and so does not return then.
    ~Interrupts();

  private:
    void wait_for_signal();

    std::function<void(const std::string&)> last_words_;
    std::array<int, 2> pipe_{-1, -1};
    std::array<struct sigaction, 2> before_{};
    std::thread thread_;
};

}  // namespace program
