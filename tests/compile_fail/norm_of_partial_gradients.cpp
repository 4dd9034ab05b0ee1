// SPDX-License-Identifier: Apache-2.0
// expected-error: global_norm takes reduced gradients
#include "model.hpp"

double norm(sk::Accumulation& accumulation) {
#ifdef REJECT
    return sk::global_norm(accumulation).value();
#else
    return sk::global_norm(sk::reduce(std::move(accumulation), sk::mean)).value();
#endif
}
