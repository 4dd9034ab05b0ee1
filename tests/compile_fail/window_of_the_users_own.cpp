// SPDX-License-Identifier: Apache-2.0
// expected-error: private
#include "model.hpp"

auto open(Layer& layer, sk::detail::Group& group) {
#ifdef REJECT
    static_cast<void>(layer);
    return Layer::Window(group, sk::SourceLocation::current());
#else
    static_cast<void>(group);
    return layer.unshard();
#endif
}
