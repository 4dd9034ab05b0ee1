// SPDX-License-Identifier: Apache-2.0
#include "interrupts.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

namespace program {

namespace {

constexpr std::array signals{SIGINT, SIGTERM};
std::atomic<int> told{-1};  // where the handler writes to

/// The thread that a signal finds may hold any lock: all it does is to wake the one that waits.
extern "C" void tell(int signal) {
    const int error = errno;
    const auto number = static_cast<unsigned char>(signal);
    static_cast<void>(!write(told.load(), &number, 1));
    errno = error;
}

}  // namespace

Interrupts::Interrupts(std::function<void(const std::string&)> last_words) : last_words_(std::move(last_words)) {
    if (pipe(pipe_.data()) != 0) { return; }  // no last words, then
    told = pipe_[1];
    try {
        thread_ = std::thread([this] { wait_for_signal(); });
    } catch (const std::system_error&) { return; }
    struct sigaction action {};
    action.sa_handler = tell;
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);  // a second one ends the program at once
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < signals.size(); ++i) {
        sigaction(signals[i], nullptr, &before_[i]);
        if (before_[i].sa_handler != SIG_IGN) { sigaction(signals[i], &action, nullptr); }
    }
}

Interrupts::~Interrupts() {
    if (thread_.joinable()) {
        for (std::size_t i = 0; i < signals.size(); ++i) { sigaction(signals[i], &before_[i], nullptr); }
        tell(0);
        thread_.join();
    }
    if (pipe_[0] >= 0) {
        close(pipe_[0]);
        close(pipe_[1]);
    }
}

void Interrupts::wait_for_signal() {
    unsigned char number = 0;
    ssize_t got = 0;
    do { got = read(pipe_[0], &number, 1); } while (got < 0 && errno == EINTR);
    if (got != 1 || number == 0) { return; }
    last_words_(number == SIGINT ? "SIGINT" : "SIGTERM");
    signal(number, SIG_DFL);
    kill(getpid(), number);
    while (true) { pause(); }
}

}  // namespace program
