// SPDX-License-Identifier: Apache-2.0
// expected-error: shardkit::ByteCount
#include <shardkit/core/counts.hpp>

constexpr shardkit::ByteCount bytes(4);
#ifdef REJECT
constexpr auto sum = bytes + 4;
#else
constexpr auto sum = bytes + shardkit::ByteCount(4);
#endif
static_assert(sum.value == 8);
