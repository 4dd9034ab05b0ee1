// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
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
    } catch (const InputError& error) { return {2, error.what()}; } catch (const std::bad_alloc&) {
        return {EXIT_FAILURE, no_memory};
    } catch (const std::exception& error) { return {EXIT_FAILURE, error.what()}; }
}

inline void print_failure(const char* program, const std::string& text) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: error: %s\n", program, text.c_str());
}

}  // namespace program
