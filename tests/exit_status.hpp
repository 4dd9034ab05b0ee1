// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

/// The exit status of a process of its own that does `work`; 99 when that returns, 1000 when a signal ends it, -1
/// when it has not ended after ten seconds.
/// @pre no other thread is under way
template <class F>
int exit_status_of(F work) {
    const pid_t child = fork();
    if (child == 0) {
        work();
        std::_Exit(99);
    }
    for (int i = 0; i < 1000; ++i) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) { return WIFEXITED(status) ? WEXITSTATUS(status) : 1000; }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
}
