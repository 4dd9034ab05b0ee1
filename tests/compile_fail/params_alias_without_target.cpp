// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: an alias names a parameter that is not in the group
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};
struct Tied : Alias<"tied", A> {};

#ifdef REJECT
using Group = Params<B, Tied>;
#else
using Group = Params<A, B, Tied>;
#endif
static_assert(Group::count > 0);
