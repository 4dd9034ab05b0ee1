// SPDX-License-Identifier: Apache-2.0
// expected-error: this parameter is not in the group
#include <shardkit/param/tensor_list.hpp>

#include "model.hpp"

using Listed = sk::Sharded<sk::TensorList<float>, sk::FullShard>;

float first(Listed& layer) {
    const auto window = layer.unshard();
#ifdef REJECT
    return window[Weight{}][0];
#else
    return window.view("weight")[0];
#endif
}
