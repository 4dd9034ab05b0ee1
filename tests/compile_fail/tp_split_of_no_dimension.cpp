// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: tp::Split<Dimension> of a parameter that has no such dimension
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct Weight : Param<"weight", float, dynamic, dynamic> {
#ifdef REJECT
    using TensorParallel = tp::Split<2>;
#else
    using TensorParallel = tp::Split<1>;
#endif
};
static_assert(Params<Weight>::count == 1);
