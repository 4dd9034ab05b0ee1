// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: a group needs at least one Param
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};
struct Tied : Alias<"tied", A> {};

#ifdef REJECT
using Group = Params<Tied>;
#else
using Group = Params<Tied, A>;
#endif
static_assert(Group::count > 0);
