// SPDX-License-Identifier: Apache-2.0
// expected-error: shardkit::Model<
// expected-error: shardkit::Precisions<shardkit::PrecisionTypes<float>, shardkit::PrecisionTypes<shardkit::bf16>
// expected-error: shardkit::Accumulation
#undef SHARDKIT_CHECKED  // of a checked build alone do types' names say which build it is
#include <shardkit/shardkit.hpp>

namespace sk = shardkit;
template <class Element>
using Layer = sk::Sharded<sk::Param<"weight", Element, 8, 8>, sk::FullShard>;

void train(Layer<float>& wide, Layer<sk::bf16>& narrow, [[maybe_unused]] sk::Accumulation& accumulation) {
    sk::Model model{wide};
    sk::Model both{wide, narrow};
#ifdef REJECT
    model.backward();
    both.backward();
    accumulation.backward();
#endif
}
