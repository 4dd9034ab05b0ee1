// SPDX-License-Identifier: Apache-2.0
#include "train_as.hpp"

namespace train_gpt {
template Results train_as<double>(const Job& job);
}
