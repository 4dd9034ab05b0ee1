// SPDX-License-Identifier: Apache-2.0
#include "../model/pass_instances.hpp"
#include "train_on_rank.hpp"

namespace train_gpt {
template Results train_as<float>(const Job& job);
}
