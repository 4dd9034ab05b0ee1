// SPDX-License-Identifier: Apache-2.0
// expected-error: no member named
#include "model.hpp"

bool holds_parameters(const Layer& layer) {
#ifdef REJECT
    return !layer.state().parameters().resting().empty();
#else
    return !layer.shards().empty();
#endif
}
