// SPDX-License-Identifier: Apache-2.0
// expected-error: Param: at most 8 dimensions
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};

#ifdef REJECT
struct Deep : Param<"deep", float, 1, 1, 1, 1, 1, 1, 1, 1, 1> {};
#else
struct Deep : Param<"deep", float, 1, 1, 1, 1, 1, 1, 1, 1> {};
#endif
static_assert(Deep::rank > 7);
