// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "program/command_line.hpp"

int main(int count, char** arguments) {
    const int code = train_gpt::run_program(count, arguments);
    if (code != EXIT_SUCCESS) {
        // OpenBLAS's threads may still wait for memory that they will not get, and exit() would wait for them.
        std::fflush(nullptr);
        std::_Exit(code);
    }
    return code;
}
