// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdlib>
#include <optional>

#include "attempt.hpp"
#include "processes.hpp"

namespace program {

/// A whole run of a program whose ranks may be processes, and its exit code: `prepare(processes)` gives an optional
/// of what `work(prepared, processes)` needs, nothing where there is nothing to do. Nobody works unless all are
/// prepared; what every process finds wrong then is said once. Output that is lost is a failure too.
template <class Prepare, class Work>
int run_together(const char* name, int count, const char* const* arguments, Prepare prepare, Work work,
                 const char* no_memory = "not enough memory for this run") {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error of the write, in words
    const auto run = [&] {
        const Processes processes(count, arguments);
        decltype(prepare(processes)) prepared;
        const Failure unprepared = attempt([&] {
            prepared = prepare(processes);
            flush_output();
        });
        const Processes::Agreement agreed = processes.agree(unprepared.code);
        if (agreed.speaks) { print_failure(name, unprepared.text); }
        if (agreed.code != EXIT_SUCCESS || !prepared) { return agreed.code; }

        const Failure failed = attempt(
            [&] {
                work(*prepared, processes);
                flush_output();
            },
            no_memory);
        if (failed.code != EXIT_SUCCESS) { print_failure(name, failed.text); }
        return failed.code;
    };
    int code = EXIT_FAILURE;
    const Failure failed = attempt([&] { code = run(); });
    if (failed.code == EXIT_SUCCESS) { return code; }
    print_failure(name, failed.text);
    return failed.code;
}

}  // namespace program
