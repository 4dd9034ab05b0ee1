// SPDX-License-Identifier: Apache-2.0
// expected-error: shardkit::ElementCount
// expected-error: shardkit::ByteCount
#include <shardkit/core/counts.hpp>

constexpr shardkit::ElementCount elements(4);
#ifdef REJECT
constexpr auto sum = elements + shardkit::ByteCount(4);
#else
constexpr auto sum = elements + shardkit::ElementCount(4);
#endif
static_assert(sum.value == 8);
