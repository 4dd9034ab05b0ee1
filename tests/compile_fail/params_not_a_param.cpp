// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: each argument must derive from Param or Alias; see param/params.hpp
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};

#ifdef REJECT
using Group = Params<A, int>;
#else
using Group = Params<A, B>;
#endif
static_assert(Group::count > 0);
