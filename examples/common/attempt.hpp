// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "input_error.hpp"

namespace program {

/// How something went: an exit code, and the error's text when it is not 0. Bad input is 2, anything else 1.
struct Failure {
    int code = EXIT_SUCCESS;
    std::string text;
};

/// f(), with what it throws as an exit code and a text; `no_memory` is the text when memory is short.
template <class F>
Failure attempt(F f, const char* no_memory = "not enough memory for this run") {
    try {
        f();
        return {};
    } catch (const InputError& error) { return {2, error.what()}; } catch (const std::bad_alloc& error) {
        return {EXIT_FAILURE, std::string(no_memory) + " (" + error.what() + ")"};
    } catch (const std::exception& error) { return {EXIT_FAILURE, error.what()}; }
}

/// What was printed has arrived.
/// @throws std::runtime_error when some of it was lost: the disk is full, a pipe has no reader
inline void flush_output() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw std::runtime_error("standard output could not be written in full");
    }
}

inline void print_failure(const char* program, const std::string& text) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: error: %s\n", program, text.c_str());
}

/// f(), whose error stands in one line; its exit code.
template <class F>
int run_program(const char* program, F f) {
    const Failure failed = attempt(f);
    if (failed.code != EXIT_SUCCESS) { print_failure(program, failed.text); }
    return failed.code;
}

}  // namespace program
