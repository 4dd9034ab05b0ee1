// SPDX-License-Identifier: Apache-2.0
// expected-error: invalid invocation of method 'add_zero' on object 'accumulation' while it is in the 'consumed' state
// compiler: clang
// flags: -Wconsumed -Werror=consumed
#include "model.hpp"

void train(Layer& layer) {
    auto model = sk::groups(layer);
    sk::Accumulation accumulation{model};
    for (const auto microbatch : {sk::Microbatch::more, sk::Microbatch::last}) {
        accumulation.add_zero(layer, microbatch);
    }
    auto reduced = sk::reduce(std::move(accumulation), sk::mean);
#ifdef REJECT
    accumulation.add_zero(layer);
#endif
}
