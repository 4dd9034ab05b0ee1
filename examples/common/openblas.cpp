// SPDX-License-Identifier: Apache-2.0
#include "openblas.hpp"

#include <strings.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <sstream>

#include <dlfcn.h>

extern "C" {  // OpenBLAS's, and without one what stands in for it: see hosts_missing.cpp
char* openblas_get_config();
char* openblas_get_corename();
}

namespace program {

namespace {

struct Row {
    const char* name;
    const char* core_type;
    const char* kernels;
};

// By Instructions. Katmai is Prescott where few kernels are built; Excavator's own processors have AVX2.
constexpr std::array<Row, 5> rows{{
    {"SSE", "Prescott",
     "Generic Prescott Katmai Core2 Penryn Dunnington Nehalem Atom Nano Opteron Opteron_SSE3 Barcelona Bobcat"},
    {"AVX", "Sandybridge", "Sandybridge Bulldozer Piledriver Steamroller"},
    {"AVX2", "Haswell", "Haswell Zen Excavator"},
    {"AVX-512", "SkylakeX", "SkylakeX Cooperlake SapphireRapids"},
    {"", "", ""},
}};

const Row& row_of(Instructions instructions) noexcept { return rows[static_cast<std::size_t>(instructions)]; }

/// OpenBLAS reads the variable when it is loaded, before main(). These two functions of its own, which it exports,
/// make it choose again; where it hides them it keeps its kernel. What this process starts later chooses for itself.
void choose_again(const char* core_type) {
    using Function = void (*)();
    const auto forget = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit"));
    const auto choose = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init"));
    if (forget == nullptr || choose == nullptr || setenv("OPENBLAS_CORETYPE", core_type, 1) != 0) { return; }
    forget();
    choose();
    unsetenv("OPENBLAS_CORETYPE");
}

Blas make_blas() {
    Blas made;
    std::istringstream config(openblas_get_config());
    std::string version;
    config >> made.library >> version;
    made.library += ' ' + version;
    made.kernel = openblas_get_corename();
    made.processor = instructions_of_processor();
    if (const char* const asked = std::getenv("OPENBLAS_CORETYPE")) { made.asked = asked; }
    if (made.asked.empty() && made.older_than_processor()) {
        choose_again(row_of(made.processor).core_type);
        made.replaced = made.kernel;
        made.kernel = openblas_get_corename();
        if (made.kernel == made.replaced) { made.replaced.clear(); }
    }
    return made;
}

}  // namespace

std::string_view core_type(Instructions instructions) noexcept { return row_of(instructions).core_type; }

Instructions instructions_of_processor() noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return Instructions::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { return Instructions::avx2; }
    return __builtin_cpu_supports("avx") ? Instructions::avx : Instructions::sse;
#else
    return Instructions::unknown;
#endif
}

Instructions instructions_of_kernel(std::string_view kernel) {
    const std::string wanted(kernel);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::istringstream names(rows[i].kernels);
        for (std::string name; names >> name;) {
            if (strcasecmp(name.c_str(), wanted.c_str()) == 0) { return static_cast<Instructions>(i); }
        }
    }
    return Instructions::unknown;
}

std::string Blas::text() const {
    std::string text = "blas:  " + library + ", kernel " + kernel;
    if (!asked.empty()) { text += " (OPENBLAS_CORETYPE=" + asked + ")"; }
    if (!replaced.empty()) { text += ", chosen here: its own choice, " + replaced + ", does not fit this processor"; }
    text += '\n';
    if (!older_than_processor()) { return text; }
    text += "       The kernel is older than this processor, which has " + std::string(row_of(processor).name) +
            ": matrix products take longer than they need to. ";
    return text + (asked.empty() ? "Set OPENBLAS_CORETYPE=" + std::string(core_type(processor)) +
                                       ", or install a newer OpenBLAS, built with DYNAMIC_ARCH.\n"
                                 : "Unset OPENBLAS_CORETYPE.\n");
}

const Blas& blas() {
    static const Blas found = make_blas();
    return found;
}

}  // namespace program
