// SPDX-License-Identifier: Apache-2.0
// expected-error: shardkit::Model
// expected-error: shardkit::PrecisionTypes<shardkit::bf16>
// expected-error: shardkit::Accumulation
#undef SHARDKIT_CHECKED  // of a checked build alone do types' names say which build it is
#include <shardkit/shardkit.hpp>

namespace sk = shardkit;
template <class Element>
using Layer = sk::Sharded<sk::Param<"weight", Element, 8, 8>, sk::FullShard>;

void train(Layer<sk::bf16>& layer, [[maybe_unused]] sk::Accumulation& accumulation) {
    sk::Model model{layer};
#ifdef REJECT
    model.backward();
    layer.backward();
    accumulation.backward();
#endif
}
