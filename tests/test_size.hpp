// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace test_size {

/// SHARDKIT_TEST_SIZE, set by .ci/run.
inline std::string_view asked_for() {
    const char* size = std::getenv("SHARDKIT_TEST_SIZE");
    return size != nullptr ? size : "";
}
/// Whether a slow build (a sanitizer, for example) asked for reduced sizes, by "small". The cases stay the same;
/// loops that dominate a run's time become shorter.
inline bool reduced() { return asked_for() == "small"; }
/// Whether a run that may take an hour asked for all of what the others have samples of, by "complete".
inline bool complete() { return asked_for() == "complete"; }

}  // namespace test_size
