// SPDX-License-Identifier: Apache-2.0
// expected-error: Params::mask: this parameter is not in the group
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};

#ifdef REJECT
using Masked = B;
#else
using Masked = A;
#endif
const auto mask = Params<A>::mask<Masked>();
