// SPDX-License-Identifier: Apache-2.0
// expected-error: values: opaque bytes have no numbers; expected std::byte for a group of std::byte, and for no other
#include "model.hpp"

struct Codes : sk::Param<"codes", std::byte, 4, 3>, sk::Frozen {};
using Quantised = sk::Sharded<Codes, sk::FullShard>;

void load(Quantised& layer, std::span<const float> numbers, std::span<const std::byte> bytes) {
#ifdef REJECT
    layer.load(Codes{}, numbers);
#else
    layer.load(Codes{}, bytes);
#endif
    static_cast<void>(numbers);
    static_cast<void>(bytes);
}
