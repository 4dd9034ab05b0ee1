// SPDX-License-Identifier: Apache-2.0
// expected-error: read_full: the values are const, expected memory to write to
#include <vector>

#include "model.hpp"

void read(Layer& layer, const std::vector<float>& given, std::vector<float>& taken) {
    layer.load(Weight{}, given);
#ifdef REJECT
    layer.read_full(Weight{}, given);
#else
    layer.read_full(Weight{}, taken);
#endif
}
