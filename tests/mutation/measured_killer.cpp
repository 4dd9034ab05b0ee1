// SPDX-License-Identifier: Apache-2.0
// Measures a step on streams that run as late as they may: 1 when communication is taken for computation. Built
// against headers in which one wait is missing that only a measured step makes.
#include <cstdio>

#include "unit/schedule/measured_lazily.hpp"

int main() {
    for (const bool norm : {true, false}) {
        if (measured_lazily::communication_is_waited_for(norm)) { continue; }
        std::printf("communication is taken for computation, %s\n", norm ? "with a norm" : "without a norm");
        return 1;
    }
}
