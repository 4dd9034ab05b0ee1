// SPDX-License-Identifier: Apache-2.0
#include "stop_signals.hpp"

#include <atomic>
#include <cstddef>

namespace program {

namespace {

std::atomic<int> signal_that_came{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler may wait for no lock");

extern "C" void remember(int signal) {
    int none = 0;
    if (signal_that_came.compare_exchange_strong(none, signal)) { return; }
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // once this handler has returned
}

}  // namespace

StopSignals::StopSignals() {
    signal_that_came = 0;
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < signals_.size(); ++i) {
        sigaction(signals_[i], nullptr, &before_[i]);
        if (before_[i].sa_handler != SIG_IGN) { sigaction(signals_[i], &action, nullptr); }
    }
}

StopSignals::~StopSignals() {
    for (std::size_t i = 0; i < signals_.size(); ++i) { sigaction(signals_[i], &before_[i], nullptr); }
}

int StopSignals::came() noexcept { return signal_that_came; }

}  // namespace program
