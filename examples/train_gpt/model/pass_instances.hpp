// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/bf16.hpp>

#include "host_place.hpp"
#include "pass.hpp"

namespace train_gpt {

// The loops that take a training's time are compiled in pass_instances.cpp alone.
extern template class Pass<double>;
extern template class Pass<float>;
extern template class Pass<shardkit::bf16>;

}  // namespace train_gpt
