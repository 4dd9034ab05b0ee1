// SPDX-License-Identifier: Apache-2.0
// expected-error: Shapes: two shapes for one parameter
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct B : Param<"b", float, dynamic> {};

#ifdef REJECT
const Shapes<B> given{shape<B>(3), shape<B>(4)};
#else
const Shapes<B> given{shape<B>(3)};
#endif
