// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

/// 77 is what Meson and automake take for "skipped".
inline constexpr int skipped_status = 77;

/// Whether a test case could not run: main then ends with skipped_status, unless another one failed.
inline bool& any_skipped() {
    static bool skipped = false;
    return skipped;
}

/// Says why the test case that calls it cannot run here, as tests/gpu/build.sh reads it.
inline void skip(const std::string& reason) {
    std::printf("skipped: %s\n", reason.c_str());
    std::fflush(stdout);
    any_skipped() = true;
}
