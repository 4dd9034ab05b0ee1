// SPDX-License-Identifier: Apache-2.0
// expected-error: Sharded: opaque bytes are not initialized from numbers; load them, or a checkpoint
#include "model.hpp"

struct Codes : sk::Param<"codes", std::byte, 4, 3>, sk::Frozen {};

void initialize(sk::Sharded<Codes, sk::FullShard>& bytes, Layer& numbers) {
#ifdef REJECT
    bytes.initialize([](auto, auto, auto) { return 1.0; });
#else
    numbers.initialize([](auto, auto, auto) { return 1.0; });
#endif
    static_cast<void>(bytes);
    static_cast<void>(numbers);
}
