// SPDX-License-Identifier: Apache-2.0
// expected-error: TensorList<Element>: the element type is one of double, float, bf16, fp16
#include <shardkit/param/tensor_list.hpp>

#include "model.hpp"

#ifdef REJECT
const sk::TensorList<int> tokens{{"tokens", {8}}};
#else
const sk::TensorList<float> weights{{"weights", {8}}};
#endif
