// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace test_size {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

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
