// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: name the parameters that are tp::PartialSum one after the other: one call sums them
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct Norm : Param<"norm", float, 3> {
    using TensorParallel = tp::PartialSum;
};
struct Weight : Param<"weight", float, 3, 3> {
    using TensorParallel = tp::Split<0>;
};
struct Bias : Param<"bias", float, 3> {
    using TensorParallel = tp::PartialSum;
};

#ifdef REJECT
using Group = Params<Norm, Weight, Bias>;
#else
using Group = Params<Weight, Norm, Bias>;
#endif
static_assert(Group::count == 3);
