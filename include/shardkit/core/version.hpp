// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The version of these headers, for #if. docs/versions.md says what a version promises.
#define SHARDKIT_VERSION_MAJOR 0
#define SHARDKIT_VERSION_MINOR 1
#define SHARDKIT_VERSION_PATCH 0

namespace shardkit {

/// The version of these headers; SHARDKIT_VERSION_MAJOR, _MINOR and _PATCH are the same for the preprocessor.
inline constexpr std::string_view version = "0.1.0";

}  // namespace shardkit
