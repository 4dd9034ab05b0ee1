// SPDX-License-Identifier: Apache-2.0
// expected-error: shape<P>(...): one extent for each dimension of P
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct A : Param<"a", float, 3> {};
struct B : Param<"b", float, dynamic> {};

#ifdef REJECT
const auto given = shape<B>(3, 4);
#else
const auto given = shape<B>(3);
#endif
