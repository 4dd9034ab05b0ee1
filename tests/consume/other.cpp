// SPDX-License-Identifier: Apache-2.0
// Macros of a code base, which are its own again behind the header.
#define check(x) (x)
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#include <shardkit/shardkit.hpp>

#include "use.hpp"

int count_in_another_unit() { return check(min(3, static_cast<int>(shardkit::DeviceMesh<2, 1, 1>{}.size()))); }
