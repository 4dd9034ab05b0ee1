// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: an alias and the parameter it names disagree on TensorParallel, Frozen or NoDecay
#include <shardkit/param/shapes.hpp>

using namespace shardkit;

struct Embedding : Param<"embedding", float, dynamic, 3> {
    using TensorParallel = tp::Split<0>;
};
struct Head : Alias<"head", Embedding> {
#ifdef REJECT
    using TensorParallel = tp::Split<1>;
#else
    using TensorParallel = tp::Split<0>;
#endif
};
static_assert(Params<Embedding, Head>::count == 1);
