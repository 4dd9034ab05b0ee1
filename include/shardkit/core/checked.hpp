// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/forms.hpp>

namespace shardkit SHARDKIT_BUILD {
/// Whether misuse of views is detected: true in a build with SHARDKIT_CHECKED.
inline constexpr bool checked = SHARDKIT_CHECKED != 0;
}
