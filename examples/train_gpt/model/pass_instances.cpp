// SPDX-License-Identifier: Apache-2.0
#include "pass_instances.hpp"

namespace train_gpt {

template class Pass<double>;
template class Pass<float>;
template class Pass<shardkit::bf16>;

}  // namespace train_gpt
