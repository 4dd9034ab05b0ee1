// SPDX-License-Identifier: Apache-2.0
// expected-error: Model: each argument must be a Sharded or a range of Sharded
#include "model.hpp"

void collect(Layer& layer, int& number) {
    static_cast<void>(&number);
#ifdef REJECT
    sk::Model model{layer, number};
#else
    sk::Model model{layer};
#endif
}
