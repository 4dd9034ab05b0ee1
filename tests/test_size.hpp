// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace test_size {

/// Whether a slow build (a sanitizer, for example) asked for reduced sizes: SHARDKIT_TEST_SIZE=small, set by
/// .ci/run. The cases stay the same; loops that dominate a run's time become shorter.
inline bool reduced() {
    const char* size = std::getenv("SHARDKIT_TEST_SIZE");
    return size != nullptr && std::string_view(size) == "small";
}

}  // namespace test_size
