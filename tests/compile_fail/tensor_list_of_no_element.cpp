// SPDX-License-Identifier: Apache-2.0
// expected-error: TensorList<Element>: the element type is double, float, bf16, fp16, std::byte, or one
#include <shardkit/param/tensor_list.hpp>

#include "model.hpp"

#ifdef REJECT
const sk::TensorList<int> tokens{{"tokens", {8}}};
#else
const sk::TensorList<float> weights{{"weights", {8}}};
#endif
