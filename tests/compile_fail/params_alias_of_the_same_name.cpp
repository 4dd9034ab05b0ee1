// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: two parameters of the group have the same name
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};
struct Tied : Alias<"b", A> {};

#ifdef REJECT
using Group = Params<A, B, Tied>;
#else
using Group = Params<A, B>;
#endif
static_assert(Group::count > 0);
