// SPDX-License-Identifier: Apache-2.0
// expected-error: private
#include "model.hpp"

auto take(sk::Accumulation& accumulation, Layer& layer, sk::detail::Group& group) {
#ifdef REJECT
    static_cast<void>(accumulation);
    static_cast<void>(layer);
    return Layer::Gradients(group, sk::SourceLocation::current());
#else
    static_cast<void>(group);
    return accumulation.gradients(layer);
#endif
}
