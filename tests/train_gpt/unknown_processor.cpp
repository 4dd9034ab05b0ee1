// SPDX-License-Identifier: Apache-2.0
// Loaded before OpenBLAS: when that chooses its kernel for the first time, it finds a processor that it does not
// know, and takes its oldest kernel. Says so on standard error.
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

extern "C" void gotoblas_dynamic_init() {
    static bool first = true;
    const auto next = reinterpret_cast<void (*)()>(dlsym(RTLD_NEXT, "gotoblas_dynamic_init"));
    if (next == nullptr) { std::abort(); }
    if (!first) { return next(); }
    first = false;
    std::fputs("unknown processor\n", stderr);
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    next();
    unsetenv("OPENBLAS_CORETYPE");
}
