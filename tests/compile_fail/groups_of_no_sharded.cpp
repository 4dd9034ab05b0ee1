// SPDX-License-Identifier: Apache-2.0
// expected-error: groups(...): each argument must be a Sharded or a range of Sharded
#include "model.hpp"

void collect(Layer& layer, int& number) {
    static_cast<void>(&number);
#ifdef REJECT
    auto model = sk::groups(layer, number);
#else
    auto model = sk::groups(layer);
#endif
}
